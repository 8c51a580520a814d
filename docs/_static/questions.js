// A search for words finds headings, such as the beginnings of error messages, and questions of the tables that answer
// them, before pages that merely hold the words somewhere. If no page holds all of the words, it finds those that hold
// the most of them. QUESTIONS is made with the site: tools/site/questions.py.
(() => {
  // how much of a text was asked for, from 0 to 1; or how much of what was asked it is, if it is all in there
  function share(asked, text) {
    const stemmer = new Stemmer();
    const isWord = (word) => !stopwords.has(word) && !/^\d+$/.test(word);
    const words = new Set(splitQuery(text.toLowerCase()).filter(isWord).map((word) => stemmer.stemWord(word)));
    const held = [...words].filter((word) => asked.has(word)).length;
    if (held === asked.size) return held / words.size;
    return held === words.size && held > 2 ? held / asked.size : 0;
  }

  function headings(asked) {
    const { alltitles, docnames, filenames, titles } = Search._index;
    return Object.entries(alltitles).flatMap(([title, places]) => {
      const found = share(asked, title);
      if (!found) return [];
      return places.map(([file, id]) => {
        const shown = titles[file] === title ? title : `${titles[file]} > ${title}`;
        const rank = TORCH_NAMES.ranks[docnames[file]] || 0;
        const anchor = id === null ? "" : `#${id}`;
        return [docnames[file], shown, anchor, null, 60 + 40 * found + rank, filenames[file], SearchResultKind.title];
      });
    });
  }

  function answers(asked) {
    const { docnames, filenames, titles } = Search._index;
    return QUESTIONS.flatMap(([question, places]) => {
      const found = share(asked, question);
      if (!found) return [];
      return places.map((place, nth) => {
        const [page, anchor] = place.split("#");
        const file = docnames.indexOf(page);
        const score = 60 + 40 * found - nth;
        return [page, titles[file], anchor ? `#${anchor}` : "", question, score, filenames[file], SearchResultKind.index];
      });
    });
  }

  // pages that hold some of the words, those with the most first
  function partly(asked, excluded) {
    const found = new Map();
    for (const word of asked)
      for (const result of Search.performTermsSearch(new Set([word]), excluded)) {
        const before = found.get(result[0]);
        result[4] = Math.min(result[4], 15) + (before ? before[4] : TORCH_NAMES.ranks[result[0]] || 0);
        found.set(result[0], result);
      }
    return [...found.values()];
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const perform = Search._performSearch;
    Search._performSearch = (query, asked, excluded, ...rest) => {
      const results = perform(query, asked, excluded, ...rest);
      if (!asked.size) return results;
      const further = [...headings(asked), ...answers(asked)];
      if (!results.length && !further.length) return partly(asked, excluded).sort(_orderResultsByScoreThenName);
      const best = new Map();
      for (const result of [...results, ...further]) {
        const [page, , anchor, , , , kind] = result;
        if (kind === SearchResultKind.index && anchor.startsWith("#undertow.")) continue; // found as an object, by name
        const place = page + anchor;
        if (!best.has(place) || best.get(place)[4] <= result[4]) best.set(place, result);
      }
      return [...best.values()].sort(_orderResultsByScoreThenName);
    };
  });
})();
