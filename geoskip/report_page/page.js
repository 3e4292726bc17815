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
  const folded = []; // what paper shows and the screen does not
  const fold = (open) => folded.forEach((details) => { details.open = open; });
  addEventListener("beforeprint", () => {
    folded.push(...document.querySelectorAll("details:not([open])"));
    fold(true);
    redraw();
  });
  addEventListener("afterprint", () => { fold(false); folded.length = 0; redraw(); });
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
  const MANY = 4000; // boxes, whose least size is smaller
  const SLOW = 25; // milliseconds of a drawing, from which on it waits until the map
  const REST = 120; // has not moved for so many

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
    const fitted = ([west, south, east, north]) => ({
      x: (west + east) / 2,
      y: (south + north) / 2,
      scale: Math.min(width / ((east - west) * data.aspect), height / (north - south)),
    });
    const home = () => fitted(data.window);
    const shown = document.createElement("canvas"); // the last full drawing, to be moved while the next is made
    let view = null;
    let moved = false; // by the reader
    let shownView = null;
    let [width, height, ratio] = [0, 0, 1];
    let pending = false;
    let resting = 0;
    let cost = 0; // milliseconds of the last full drawing

    const toX = (x) => (x - view.x) * data.aspect * view.scale + width / 2;
    const toY = (y) => (view.y - y) * view.scale + height / 2;
    const atX = (px) => (px - width / 2) / (data.aspect * view.scale) + view.x;
    const atY = (py) => view.y - (py - height / 2) / view.scale;

    const colour = (name) => {
      tip.style.borderColor = `var(--${name})`;
      return getComputedStyle(tip).borderTopColor;
    };

    const isSeen = ([x0, y0, x1, y1]) =>
      toX(x1) >= 0 && toX(x0) <= width && toY(y0) >= 0 && toY(y1) <= height;

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
      const [acrossX, acrossY] = [data.aspect * view.scale, view.scale];
      const [leftX, topY] = [width / 2 - view.x * acrossX, height / 2 + view.y * acrossY];
      const least = boxes.length > 4 * MANY ? 2 : 4; // pixels
      const columns = Math.ceil(width / least) + 2;
      const dots = new Uint8Array(columns * (Math.ceil(height / least) + 2)); // a few a place are enough
      const outlines = [];
      context.fillStyle = context.strokeStyle = colour(name);
      context.globalAlpha = opacity;
      for (let i = 0; i < boxes.length; i += 4) {
        let x = boxes[i] * acrossX + leftX;
        let y = topY - boxes[i + 3] * acrossY;
        let w = (boxes[i + 2] - boxes[i]) * acrossX;
        let h = (boxes[i + 3] - boxes[i + 1]) * acrossY;
        if (x > width || y > height || x + w < 0 || y + h < 0) continue;
        if (w < least) { x -= (least - w) / 2; w = least; }
        if (h < least) { y -= (least - h) / 2; h = least; }
        if (w === least && h === least) {
          const place = (Math.floor(y / least) + 1) * columns + Math.floor(x / least) + 1;
          if (dots[place] === 4) continue;
          dots[place]++;
        }
        context.fillRect(x, y, w, h);
        if (outlines.length <= 4 * MOST_OUTLINES) outlines.push(x, y, w, h);
      }
      if (outlines.length > 4 * MOST_OUTLINES) return;
      context.globalAlpha = 0.85;
      context.lineWidth = name === "kept" ? 1.4 : 0.7;
      for (let i = 0; i < outlines.length; i += 4) {
        context.strokeRect(outlines[i], outlines[i + 1], outlines[i + 2], outlines[i + 3]);
      }
    };

    /** Show the last full drawing where it lies in the view now, until a full one follows. */
    const drawMoved = () => {
      const [by, x, y] = [view.scale / shownView.scale, toX(shownView.x), toY(shownView.y)];
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = colour(land.length ? "sea" : "land");
      context.fillRect(0, 0, width, height);
      context.drawImage(shown, x - (by * width) / 2, y - (by * height) / 2, by * width, by * height);
    };

    const draw = () => {
      const started = performance.now();
      clearTimeout(resting);
      ratio = Math.max(window.devicePixelRatio || 1, paper.matches ? 2 : 1);
      width = canvas.clientWidth;
      height = canvas.clientHeight;
      if (!width || !height) return;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      if (!moved) view = home(); // of this size: paper is narrower
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
      shown.width = canvas.width;
      shown.height = canvas.height;
      shown.getContext("2d").drawImage(canvas, 0, 0);
      shownView = { ...view };
      cost = performance.now() - started;
    };
    const later = () => {
      if (pending) return;
      pending = true;
      requestAnimationFrame(() => {
        pending = false;
        if (cost < SLOW) { draw(); return; }
        drawMoved();
        clearTimeout(resting);
        resting = setTimeout(draw, REST);
      });
    };

    const go = (x, y) => {
      moved = true;
      view.x = clamp(x, data.whole[0], data.whole[2]); // nobody gets lost
      view.y = clamp(y, data.whole[1], data.whole[3]);
      tip.hidden = true;
      later();
    };
    const move = (dx, dy) => go(view.x - dx / (data.aspect * view.scale), view.y + dy / view.scale);
    const zoom = (by, px = width / 2, py = height / 2) => {
      const [x, y] = [atX(px), atY(py)];
      view.scale = clamp(view.scale * by, fitted(data.whole).scale / 1.5, home().scale * 20000);
      go(view.x + x - atX(px), view.y + y - atY(py));
    };
    const reset = () => { moved = false; view = home(); later(); };

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
      tip.style.left = `${clamp(px + 14, 0, Math.max(width - tip.offsetWidth - 4, 0))}px`;
      tip.style.top = `${clamp(py + 14, 0, Math.max(height - tip.offsetHeight - 4, 0))}px`;
    };

    figure.querySelector(".tools").hidden = false;
    new ResizeObserver(draw).observe(canvas);
    maps.push(draw);
    draw();
  });
})();
