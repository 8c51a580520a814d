// A search for one of PyTorch's names, `torch.cat`, is a search for undertow's, and finds that before all that is merely
// spelled alike. Of a name that has no entry here, the search says where it is, or what to use instead; of the name of
// an argument, who has it. Of pages that hold the words alike, those come first whose titles say more of them, and those
// to start with and to use come before those for who maintains the library.
// What is known of such names, TORCH_NAMES, is made with the site: tools/site/names.py.
const torchNames = (() => {
  const SHORT = { F: "nn.functional", dist: "distributed", fwAD: "autograd.forward_ad", tdist: "distributions" };
  const { aliases, plain, moved, reasons, classes, members, parameters } = TORCH_NAMES;
  // classes that people ask of when they name a method alone: `state_dict`
  const KNOWN_BEST = ["undertow.Tensor.", "undertow.nn.Module.", "undertow.optim.Optimizer."];
  const has = (table, name) => Object.prototype.hasOwnProperty.call(table, name);

  // `torch.utils.data.DataLoader(` -> data.DataLoader, or null for what is no name
  function spelled(asked) {
    const word = asked.trim().replace(/\(.*$/, "").replace(/^`|`$/g, "");
    if (!/^[A-Za-z_][\w.]*$/.test(word)) return null;
    let below = word.replace(/^(torch|ut|undertow)\./, "");
    const first = below.split(".")[0];
    if (has(SHORT, first) && below.includes(".")) below = SHORT[first] + below.slice(first.length);
    if (has(aliases, below)) return below;
    const module = Object.keys(moved).find((name) => (below + ".").startsWith(name + "."));
    return module ? moved[module] + below.slice(module.length) : below;
  }

  // `nn.Linear.state_dict` -> the class, nn.Linear, and what is asked of it; null for what is of no class
  function ofClass(below) {
    const [owner, member] = [below.replace(/\.\w+$/, ""), below.split(".").pop()];
    const name = has(aliases, owner) ? aliases[owner] : owner;
    return owner !== below && has(classes, name) ? { name, member } : null;
  }

  // the entry to look for: of a method that is inherited, that of the class that has it; of one without, its class
  function path(asked) {
    const below = spelled(asked);
    if (below === null) return null;
    if (has(aliases, below)) return aliases[below];
    const found = has(classes, below) ? null : ofClass(below);
    if (!found) return below;
    const has_it = (name) => has(members, name) && members[name].includes(` ${found.member} `);
    const owner = [found.name, ...classes[found.name]].find(has_it);
    return owner ? `${owner}.${found.member}` : found.name;
  }

  // how well an entry fits, for sorting; 0 is for what is merely alike
  function fit(entry, name) {
    if (entry === `undertow.${name}`) return 1000;
    const better = KNOWN_BEST.some((owner) => entry.startsWith(owner)) ? 15 : 0;
    const inside = 900 - 10 * entry.split(".").length + better;
    if (entry.endsWith(`.${name}`)) return inside;
    return entry.toLowerCase().endsWith(`.${name.toLowerCase()}`) ? inside - 100 : 0;
  }

  // what to say of a name that no entry has
  function note(asked, follows) {
    const name = spelled(asked);
    if (name === null || /(^|\.)_/.test(name)) return null; // names of Python, and private ones, have no entries
    if (has(plain, name)) return `undertow.${name}: ${plain[name]} (help(undertow.${name}) says more.)`;
    if (has(aliases, name)) return null;
    const of = has(classes, name) ? null : ofClass(name);
    if (of && path(asked) !== of.name) return null;
    if (!/^(torch|ut|undertow)\./.test(asked.trim())) return null;
    const found = reasons.find(([pattern]) => new RegExp(`^(?:${pattern})`).test(`torch.${name}`));
    if (of && !(found && ["Tensor", "nn.Module"].includes(of.name)))
      return `${of.member} has no entry of its own: here is that of its class, undertow.${of.name}.`;
    const rest = follows ? " What follows is spelled alike, or speaks of it." : "";
    return `undertow has no ${name}` + (found ? `: ${found[1]}` : `.${rest}`);
  }

  // entries of functions that have an argument of this name, as results; those first that pages call with it
  function takers(asked) {
    const owners = has(parameters, asked) ? parameters[asked] : [];
    return owners.flatMap((owner, nth) => {
      const entry = `undertow.${owner}`.toLowerCase();
      const alike = Search.performObjectSearch(entry, new Set([entry]));
      const same = alike.filter(([, title]) => title.toLowerCase() === entry);
      return same.map(([page, title, anchor, , , file, kind]) =>
        [page, title, anchor, `has an argument ${asked}`, 700 - nth, file, kind]);
    });
  }

  return { path, spelled, fit, note, takers };
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
    const said = (name && torchNames.note(asked, true)) || "";
    Scorer.score = ([page, title, , , score, , kind]) =>
      (name && isEntry(title, kind) && torchNames.fit(title, name)) ||
      score + (TORCH_NAMES.ranks[page] || 0) + 4 * told(title) + (said.includes(`docs/${page}.md`) ? 950 : 0);
    if (!name) return;
    const perform = Search._performSearch;
    Search._performSearch = (...query) => {
      const results = perform(...query);
      const isThere = results.some(([, title]) => title === `undertow.${torchNames.spelled(asked)}`);
      const text = isThere ? null : torchNames.note(asked, results.length > 0);
      if (text) say(text);
      const listed = new Set(results.map(([, title]) => title));
      const others = torchNames.takers(asked.trim()).filter(([, title]) => !listed.has(title));
      return [...results, ...others].sort(_orderResultsByScoreThenName);
    };
  });
})();
