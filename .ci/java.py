"""Print the home of a Java that Spark accepts, or say in one sentence how to get one.

The order is JAVA_HOME, the `java` on PATH, then the places where systems keep theirs. A version, given as an
argument, goes before that order where there is one. With `--install`, on Debian or Ubuntu as root, apt installs a
Java where none is found. Standard library only: this runs before there is an environment.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ACCEPTED = (17, 21)  # Spark 3.5 and 4.0 fail on Java 24 and newer, Spark 4 on 11 and older
PLACES = (
    "/usr/lib/jvm/*",
    "/usr/lib64/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/*j[dr][ke]*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*",
    "/usr/local/opt/openjdk@*",
    "/home/linuxbrew/.linuxbrew/opt/openjdk@*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


def candidates() -> Iterator[Path]:
    """`java` commands, likeliest first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin/java")
    if command := shutil.which("java"):
        yield Path(command)
    for place in map(os.path.expanduser, PLACES):
        yield from sorted(Path("/").glob(f"{place[1:]}/bin/java"))


def identify(java: Path) -> tuple[int, str] | None:
    """Version and home as this Java itself tells them, None where it does not run."""
    try:
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", told)
    home = re.search(r"java\.home = (.+)", told)
    return (int(version[1]), home[1].strip()) if version and home else None


def apt_package() -> str:
    """Debian has one accepted Java a release (12: 17, 13: 21); Ubuntu has both."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    seventeen = release.get("ID") == "ubuntu" or release.get("VERSION_ID") in ("11", "12")
    return f"openjdk-{17 if seventeen else 21}-jre-headless"


def how_to_install() -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        command = f"{sudo}apt-get update && {sudo}apt-get install -y {apt_package()}"
        return f"`make java` or `{command}`" if not sudo else f"`{command}`"
    for manager, arguments in (
        ("dnf", "install -y java-21-openjdk-headless"),
        ("zypper", "install -y java-21-openjdk-headless"),
        ("apk", "add openjdk17-jre-headless"),
        ("pacman", "-S --noconfirm jre21-openjdk-headless"),
    ):
        if shutil.which(manager):
            return f"`{sudo}{manager} {arguments}`"
    if shutil.which("brew"):
        return "`brew install openjdk@17`"
    return "an installer from https://adoptium.net"


def install() -> str | None:
    """None once apt has installed a Java, else the reason why not."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return f"make java works as root on Debian and Ubuntu; here, install Java with {how_to_install()}"
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", apt_package()]):
        if subprocess.run(["apt-get", "-q", *command], env=environment).returncode:
            return f"apt-get {' '.join(command)} failed"
    return None


def main(arguments: list[str]) -> str | None:
    refused = set()
    second = None
    for version, home in filter(None, map(identify, candidates())):
        if version not in ACCEPTED:
            refused.add(version)
        elif arguments in ([], ["--install"], [str(version)]):
            print(home)
            return None
        else:
            second = second or home
    if second:
        print(second)
        return None
    if arguments == ["--install"]:
        return install()
    found = f"refuses the Java {' and '.join(map(str, sorted(refused)))} found here" if refused else "found none"
    return f"Spark needs Java 17 or 21 and {found}: install one with {how_to_install()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
