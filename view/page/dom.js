// Makes elements of the page. Text becomes text nodes only: names and logs are not trusted.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

export function setText(element, text) {
  const own = String(text ?? "");
  if (element.textContent !== own) element.textContent = own;
}

// Returns whether one of these values differs from those of the last call for this element.
const seen = new WeakMap();
export function hasChanged(element, ...values) {
  const before = seen.get(element);
  seen.set(element, values);
  return !before || before.length !== values.length || values.some((v, i) => v !== before[i]);
}

// Gives `parent` one child per item. A child stays, with its focus, while its key does.
export function keyed(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const used = new Set();
  items.forEach((item, i) => {
    let key = String(keyOf(item));
    while (used.has(key)) key += "'";
    used.add(key);
    const child = old.get(key) ?? create(item);
    old.delete(key);
    child.dataset.key = key;
    update(child, item);
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
  for (const child of old.values()) child.remove();
}

// Makes a row, whose cells fillRow fills. `labels` name the cells if the table is a list of cards.
export function makeRow(labels, attributes = {}) {
  return make("tr", attributes, ...labels.map((label) => make("td", { "data-label": label })));
}

// Fills a row's cells with `contents`: texts, or elements that replace a cell's content.
export function fillRow(row, contents) {
  contents.forEach((content, i) => {
    const cell = row.cells[i];
    if (!(content instanceof Node)) setText(cell, content);
    else if (cell.firstChild !== content) cell.replaceChildren(content);
  });
}

// Asks before an action that cannot be undone. Calls `then` if the answer is yes.
export function confirmFirst(question, answer, then) {
  const dialog = find("confirm");
  setText(find("confirm-question"), question);
  setText(find("confirm-yes"), answer);
  dialog.returnValue = "";
  dialog.onclose = () => { if (dialog.returnValue === "yes") then(); };
  dialog.showModal();
}
