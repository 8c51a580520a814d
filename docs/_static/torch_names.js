// A search for one of PyTorch's names, `torch.cat`, is a search for undertow's, and finds that before all that is merely
// spelled alike. Of a name that has no entry here, the search says where it is, or what to use instead. Of pages that
// hold the words alike, those come first whose titles say more of them, and those to start with and to use come before
// those for who maintains the library.
// What is known of such names, TORCH_NAMES, is made with the site: tools/site/names.py.
const torchNames = (() => {
  const SHORT = { F: "nn.functional", dist: "distributed", fwAD: "autograd.forward_ad", tdist: "distributions" };
  const { aliases, plain, moved, reasons } = TORCH_NAMES;
  const has = (table, name) => Object.prototype.hasOwnProperty.call(table, name);

  // `torch.utils.data.DataLoader(` -> data.DataLoader, or null for what is no name
  function path(asked) {
    const word = asked.trim().replace(/\(.*$/, "").replace(/^`|`$/g, "");
    if (!/^[A-Za-z_][\w.]*$/.test(word)) return null;
    let below = word.replace(/^(torch|ut|undertow)\./, "");
    const first = below.split(".")[0];
    if (has(SHORT, first) && below.includes(".")) below = SHORT[first] + below.slice(first.length);
    if (has(aliases, below)) return aliases[below];
    const module = Object.keys(moved).find((name) => (below + ".").startsWith(name + "."));
    return module ? moved[module] + below.slice(module.length) : below;
  }

  // how well an entry fits, for sorting; 0 is for what is merely alike
  function fit(entry, name) {
    if (entry === `undertow.${name}`) return 1000;
    const inside = 900 - 10 * entry.split(".").length;
    if (entry.endsWith(`.${name}`)) return inside;
    return entry.toLowerCase().endsWith(`.${name.toLowerCase()}`) ? inside - 100 : 0;
  }

  // what to say of a name that no entry has
  function note(asked, name, follows) {
    if (/(^|\.)_/.test(name)) return null; // names of Python, and private ones, have no entries
    if (has(plain, name)) return `undertow.${name}: ${plain[name]} (help(undertow.${name}) says more.)`;
    if (!/^(torch|ut|undertow)\./.test(asked.trim())) return null;
    const found = reasons.find(([pattern]) => new RegExp(`^(?:${pattern})`).test(`torch.${name}`));
    const rest = follows ? " What follows is spelled alike, or speaks of it." : "";
    return `undertow has no ${name}` + (found ? `: ${found[1]}` : `.${rest}`);
  }

  return { path, fit, note };
})();

(() => {
  const address = new URL(location.href);
  const asked = address.searchParams.get("q");
  if (!asked) return;
  const name = torchNames.path(asked);
  const dotted = name && /^(torch|ut|undertow)\.|\./.test(asked) ? `undertow.${name}` : name;
  if (name && dotted !== asked) {
    address.searchParams.set("q", dotted);
    history.replaceState(null, "", address); // before the search reads it
  }
  const say = (text) => {
    const place = document.getElementById("search-results");
    if (!place) return;
    const words = document.createElement("p");
    words.className = "admonition search-note";
    for (const part of text.split(/(docs\/[\w-]+\.md)/)) {
      const page = /^docs\/(.*)\.md$/.exec(part);
      const link = page && Object.assign(document.createElement("a"), { href: `${page[1]}.html`, textContent: page[1] });
      words.append(link || part);
    }
    place.prepend(words);
  };
  document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return; // another page that has a `q` in its address
    if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false; // pages cannot be fetched
    const isEntry = (title, kind) => kind === "object" || title === `undertow.${name}`; // or the page of a module
    const words = asked.toLowerCase().split(/[\s-]+/).filter((word) => word.length > 3);
    const told = (title) => words.filter((word) => title.toLowerCase().includes(word)).length;
    Scorer.score = ([page, title, , , score, , kind]) =>
      (name && isEntry(title, kind) && torchNames.fit(title, name)) ||
      score + (TORCH_NAMES.ranks[page] || 0) + 4 * told(title);
    if (!name) return;
    const perform = Search._performSearch;
    Search._performSearch = (...query) => {
      const results = perform(...query);
      const isThere = results.some(([, title]) => torchNames.fit(title, name) === 1000);
      const text = isThere ? null : torchNames.note(asked, name, results.length > 0);
      if (text) say(text);
      return results;
    };
  });
})();
