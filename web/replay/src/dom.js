// Making elements.
export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  const { text, class: name, label, live, ...rest } = options;
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  if (label) made.setAttribute("aria-label", label);
  if (live) made.setAttribute("aria-live", live);
  for (const [key, value] of Object.entries(rest)) {
    if (key.startsWith("on")) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** A canvas that fills its place, sharp on every screen. */
export function canvasIn(place, label) {
  const canvas = element("canvas", { label, tabindex: 0, role: "img" });
  place.append(canvas);
  return canvas;
}

export function fit(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 3);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { context, ratio };
}

/** The page's colours, as the style sheet has them now. */
export function colours(forPrint = false) {
  document.documentElement.classList.toggle("printing", forPrint);
  const style = getComputedStyle(document.documentElement);
  const found = {};
  for (const name of ["paper", "ink", "faint", "line", "pending", "ready", "running", "done", "leaf", "bad", "group", "accent"]) {
    found[name] = style.getPropertyValue(`--${name}`).trim();
  }
  return found;
}
