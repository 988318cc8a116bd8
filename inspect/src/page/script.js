// Lines that belong together: each line of a stage says of which lines of the source it is, `data-l="0:9 1:3"`, the innermost
// first. Pointing at one marks all that are of its first; a click keeps them marked, and shows the first of each stage.
for (const box of document.querySelectorAll('.stages')) {
  const byPlace = new Map();
  for (const line of box.querySelectorAll('[data-l]')) {
    for (const place of line.dataset.l.split(' ')) {
      if (!byPlace.has(place)) byPlace.set(place, []);
      byPlace.get(place).push(line);
    }
  }
  const placeOf = (event) => event.target.closest?.('[data-l]')?.dataset.l.split(' ')[0];
  const mark = (name, place) => {
    for (const line of box.querySelectorAll('.' + name)) line.classList.remove(name);
    for (const line of byPlace.get(place) ?? []) line.classList.add(name);
  };
  const show = (place, but) => {
    for (const pane of box.querySelectorAll('.pane:not([hidden]) pre')) {
      const first = (byPlace.get(place) ?? []).find((line) => pane.contains(line));
      if (first && pane !== but) pane.scrollTop = first.offsetTop - pane.offsetTop - pane.clientHeight / 3;
    }
  };
  let pinned;
  box.addEventListener('mouseover', (event) => mark('here', placeOf(event)));
  box.addEventListener('mouseleave', () => mark('here', undefined));
  box.addEventListener('click', (event) => {
    const place = placeOf(event);
    if (!place) return;
    pinned = pinned === place ? undefined : place;
    mark('pin', pinned);
    if (pinned) show(pinned, event.target.closest('pre'));
  });
  const buttons = [...box.querySelectorAll('.chosen button')];
  const pane = (button) => box.querySelector('.pane[data-stage="' + button.dataset.stage + '"]');
  const choose = (button, isOn) => {
    button.setAttribute('aria-pressed', isOn);
    pane(button).hidden = !isOn;
  };
  for (const button of buttons) {
    button.addEventListener('click', () => {
      choose(button, button.getAttribute('aria-pressed') !== 'true');
      if (pinned) show(pinned);
    });
    choose(button, button.hasAttribute('data-first'));
  }
  box.querySelector('.panes').classList.add('beside');
  box.querySelector('.chosen').hidden = false;
}
// A link to a variant opens it.
const open = () => {
  const wanted = document.getElementById(location.hash.slice(1));
  if (wanted?.matches('details')) wanted.open = true;
};
addEventListener('hashchange', open);
open();
