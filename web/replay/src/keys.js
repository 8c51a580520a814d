// The keyboard: everything that the mouse can do.
export function listenToKeys(page) {
  addEventListener("keydown", (event) => {
    if (!page.graph || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === page.search) {
      if (event.key === "Escape" || event.key === "Enter") page.graph.canvas.focus();
      return;
    }
    if (event.target instanceof HTMLSelectElement) return;
    const onButton = event.target instanceof HTMLButtonElement;
    const onSlider = event.target === page.replay.slider;
    const action = {
      " ": () => !onButton && page.replay.toggle(),
      ".": () => page.replay.stepNode(1),
      ",": () => page.replay.stepNode(-1),
      Home: () => page.replay.seek(0),
      End: () => page.replay.seek(page.pass.duration),
      Enter: () => !onButton && page.graph.selected && page.graph.toggle(page.graph.selected),
      Escape: () => closeAround(page.graph),
      ArrowLeft: () => !onSlider && page.graph.step(-1, 0),
      ArrowRight: () => !onSlider && page.graph.step(1, 0),
      ArrowUp: () => !onSlider && page.graph.step(0, -1),
      ArrowDown: () => !onSlider && page.graph.step(0, 1),
      "+": () => page.graph.zoomBy(1.3),
      "-": () => page.graph.zoomBy(1 / 1.3),
      f: () => page.graph.fit(),
      e: () => page.graph.openAll(),
      c: () => page.graph.closeAll(),
      "/": () => page.search.focus(),
    }[event.key];
    if (action && action() !== false) event.preventDefault();
  });
}

/** Close the group that the selected item stands in; without one, select nothing. */
function closeAround(graph) {
  const box = graph.selected?.box;
  if (box) graph.toggle(box);
  else graph.choose(null);
}
