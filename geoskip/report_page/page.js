"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const maps = [];
  const redraw = () => maps.forEach((draw) => draw());

  const toggle = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const named = () => { toggle.textContent = isDark() ? "Light" : "Dark"; };
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
    redraw();
  });
  dark.addEventListener("change", () => { named(); redraw(); });
  paper.addEventListener("change", redraw);
  addEventListener("beforeprint", redraw);
  addEventListener("afterprint", redraw);
  named();

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const floats = (text) => new Float32Array(bytes(text));
  const numbers = (text) => new Int32Array(bytes(text));
  const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

  /** Lines of points as separate arrays x, y, x, y ..., each with its bounds. */
  const lines = (packed) => {
    const all = floats(packed.points);
    let start = 0;
    return packed.lengths.map((length) => {
      const points = all.subarray(2 * start, 2 * (start + length));
      start += length;
      const bounds = [Infinity, Infinity, -Infinity, -Infinity];
      for (let i = 0; i < points.length; i++) {
        const axis = i % 2;
        bounds[axis] = Math.min(bounds[axis], points[i]);
        bounds[axis + 2] = Math.max(bounds[axis + 2], points[i]);
      }
      return { points, bounds };
    });
  };

  const MOST_OUTLINES = 4000; // boxes in view whose outlines are drawn besides
  const LEAST = 2; // pixels of a box

  document.querySelectorAll(".map").forEach((figure) => {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const canvas = figure.querySelector("canvas");
    const tip = figure.querySelector(".tip");
    const context = canvas.getContext("2d");
    const land = lines(data.land);
    const shapes = data.shapes.map((shape) => ({ isArea: shape.area, rings: lines(shape) }));
    const layers = ["skipped", "kept"].map((name) => ({
      name,
      opacity: data[name].opacity,
      boxes: floats(data[name].boxes),
      files: numbers(data[name].files),
    }));
    const [west, south, east, north] = data.window;
    const home = () => ({
      x: (west + east) / 2,
      y: (south + north) / 2,
      scale: Math.min(canvas.clientWidth / ((east - west) * data.aspect), canvas.clientHeight / (north - south)),
    });
    let view = null;
    let pending = false;

    const toX = (x) => (x - view.x) * data.aspect * view.scale + canvas.clientWidth / 2;
    const toY = (y) => (view.y - y) * view.scale + canvas.clientHeight / 2;
    const atX = (px) => (px - canvas.clientWidth / 2) / (data.aspect * view.scale) + view.x;
    const atY = (py) => view.y - (py - canvas.clientHeight / 2) / view.scale;

    const colour = (name) => {
      tip.style.borderColor = `var(--${name})`;
      return getComputedStyle(tip).borderTopColor;
    };

    const isSeen = ([x0, y0, x1, y1]) =>
      toX(x1) >= 0 && toX(x0) <= canvas.clientWidth && toY(y0) >= 0 && toY(y1) <= canvas.clientHeight;

    const trace = (rings, isClosed) => {
      context.beginPath();
      rings.filter((ring) => isSeen(ring.bounds)).forEach(({ points }) => {
        for (let i = 0; i < points.length; i += 2) {
          context[i ? "lineTo" : "moveTo"](toX(points[i]), toY(points[i + 1]));
        }
        if (isClosed) context.closePath();
      });
    };

    const drawBoxes = ({ name, opacity, boxes }) => {
      const width = canvas.clientWidth;
      const height = canvas.clientHeight;
      const outlines = [];
      context.fillStyle = context.strokeStyle = colour(name);
      context.globalAlpha = opacity;
      for (let i = 0; i < boxes.length; i += 4) {
        let x = toX(boxes[i]);
        let y = toY(boxes[i + 3]);
        let w = (boxes[i + 2] - boxes[i]) * data.aspect * view.scale;
        let h = (boxes[i + 3] - boxes[i + 1]) * view.scale;
        if (x > width || y > height || x + w < 0 || y + h < 0) continue;
        if (w < LEAST) { x -= (LEAST - w) / 2; w = LEAST; }
        if (h < LEAST) { y -= (LEAST - h) / 2; h = LEAST; }
        context.fillRect(x, y, w, h);
        if (outlines.length <= MOST_OUTLINES) outlines.push([x, y, w, h]);
      }
      if (outlines.length > MOST_OUTLINES) return;
      context.globalAlpha = 0.85;
      context.lineWidth = name === "kept" ? 1.4 : 0.7;
      outlines.forEach((box) => context.strokeRect(...box));
    };

    const draw = () => {
      pending = false;
      const ratio = Math.max(window.devicePixelRatio || 1, paper.matches ? 2 : 1);
      const width = canvas.clientWidth;
      const height = canvas.clientHeight;
      if (!width || !height) return;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      view = view || home();
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = colour(land.length ? "sea" : "land");
      context.fillRect(0, 0, width, height);
      trace(land, true);
      context.fillStyle = colour("land");
      context.strokeStyle = colour("coast");
      context.lineWidth = 0.8;
      context.fill();
      context.stroke();
      layers.forEach(drawBoxes);
      context.globalAlpha = 1;
      context.strokeStyle = context.fillStyle = colour("shape");
      context.lineWidth = 1.8;
      shapes.forEach(({ isArea, rings }) => {
        trace(rings, isArea);
        context.stroke();
        rings.filter(({ points }) => points.length === 2).forEach(({ points: [x, y] }) => {
          context.fillRect(toX(x) - 6, toY(y) - 1, 12, 2);
          context.fillRect(toX(x) - 1, toY(y) - 6, 2, 12);
        });
      });
      context.lineWidth = 1.3;
      context.setLineDash([6, 4]);
      data.limits.forEach(([axis, value]) => {
        context.beginPath();
        context.moveTo(axis ? 0 : toX(value), axis ? toY(value) : 0);
        context.lineTo(axis ? width : toX(value), axis ? toY(value) : height);
        context.stroke();
      });
      context.setLineDash([]);
    };
    const later = () => {
      if (!pending) requestAnimationFrame(draw);
      pending = true;
    };

    const move = (dx, dy) => {
      view.x -= dx / (data.aspect * view.scale);
      view.y += dy / view.scale;
      tip.hidden = true;
      later();
    };
    const zoom = (by, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) => {
      const [x, y] = [atX(px), atY(py)];
      const least = home().scale;
      view.scale = clamp(view.scale * by, least / 50, least * 20000);
      view.x += x - atX(px);
      view.y += y - atY(py);
      tip.hidden = true;
      later();
    };
    const reset = () => { view = home(); later(); };

    const held = new Map(); // pointers that are down
    const spread = () => {
      const [a, b] = [...held.values()];
      return Math.hypot(a.offsetX - b.offsetX, a.offsetY - b.offsetY);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, event);
      canvas.classList.add("held");
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) { point(event.offsetX, event.offsetY); return; }
      const far = held.size === 2 ? spread() : 0;
      held.set(event.pointerId, event);
      move((event.offsetX - before.offsetX) / held.size, (event.offsetY - before.offsetY) / held.size);
      if (far) zoom(spread() / far, event.offsetX, event.offsetY);
    });
    ["pointerup", "pointercancel"].forEach((name) => canvas.addEventListener(name, (event) => {
      held.delete(event.pointerId);
      canvas.classList.toggle("held", held.size > 0);
    }));
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => zoom(2, event.offsetX, event.offsetY));
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
      event.preventDefault();
      zoom(Math.exp(-clamp(event.deltaY, -200, 200) / 300), event.offsetX, event.offsetY);
    }, { passive: false });
    const keys = {
      ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0), ArrowUp: () => move(0, 60),
      ArrowDown: () => move(0, -60), "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: reset,
    };
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", keys[button.value]));

    /** Name the files whose boxes lie under the pointer. */
    const point = (px, py) => {
      const [x, y] = [atX(px), atY(py)];
      const [roomX, roomY] = [2 / (data.aspect * view.scale), 2 / view.scale];
      const found = layers.flatMap(({ name, boxes, files }) => {
        const met = new Set();
        for (let i = 0; i < files.length; i++) {
          const isIn = boxes[4 * i] - roomX <= x && x <= boxes[4 * i + 2] + roomX
            && boxes[4 * i + 1] - roomY <= y && y <= boxes[4 * i + 3] + roomY;
          if (isIn) met.add(files[i]);
        }
        return [...met].map((file) => `${data.names[file] || "file " + file} (${name})`);
      }).reverse();
      tip.hidden = !found.length;
      if (!found.length) return;
      tip.textContent = found.slice(0, 3).join("\n") + (found.length > 3 ? `\nand ${found.length - 3} more` : "");
      tip.style.left = `${clamp(px + 14, 0, Math.max(canvas.clientWidth - tip.offsetWidth - 4, 0))}px`;
      tip.style.top = `${clamp(py + 14, 0, Math.max(canvas.clientHeight - tip.offsetHeight - 4, 0))}px`;
    };

    figure.querySelector(".tools").hidden = false;
    new ResizeObserver(later).observe(canvas);
    maps.push(draw);
    draw();
  });
})();
