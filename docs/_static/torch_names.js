// A search for one of PyTorch's names, `torch.cat`, is a search for undertow's. It runs before the search reads the address.
(() => {
  const address = new URL(location.href);
  const asked = address.searchParams.get("q");
  if (!asked) return;
  const elsewhere = { "torch.utils.data.": "undertow.data.", "torch.nn.parallel.": "undertow.distributed." };
  const words = asked.split(/\s+/).map((word) => {
    const [theirs, ours] = Object.entries(elsewhere).find(([name]) => word.startsWith(name)) ?? [/^(torch|ut)\./, "undertow."];
    return word.replace(theirs, ours);
  });
  address.searchParams.set("q", words.join(" "));
  if (words.join(" ") !== asked) history.replaceState(null, "", address);
})();
