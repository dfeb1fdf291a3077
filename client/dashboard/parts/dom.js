/*
 * dom: elements from script. Text is only ever text: nothing here reads markup from data.
 */

/* el('button', {class: 'button', 'aria-label': 'Pause', onclick: f}, 'Pause', icon('pause')) */
export function el(tag, properties, ...children) {
    const element = document.createElement(tag);
    set(element, properties || {});
    append(element, children);
    return element;
}

export function set(element, properties) {
    for (const [name, value] of Object.entries(properties)) {
        if (name.startsWith('on'))
            element.addEventListener(name.slice(2), value);
        else if (value === null || value === undefined || value === false)
            element.removeAttribute(name);
        else
            element.setAttribute(name, value === true ? '' : String(value));
    }
}

function append(element, children) {
    for (const child of children.flat(Infinity)) {
        if (child !== null && child !== undefined && child !== false)
            element.append(child); /* a string becomes a text node */
    }
}

/* Writes only what differs: a live region or a selection is not disturbed. */
export function text(element, value) {
    const next = value === null || value === undefined ? '' : String(value);
    if (element.textContent !== next)
        element.textContent = next;
}

const SVG = 'http://www.w3.org/2000/svg';

/* One of the symbols of index.html; decoration: the control has its own name. */
export function icon(name) {
    const svg = document.createElementNS(SVG, 'svg');
    const use = document.createElementNS(SVG, 'use');
    svg.setAttribute('class', 'icon');
    svg.setAttribute('aria-hidden', 'true');
    use.setAttribute('href', `#i-${name}`);
    svg.append(use);
    return svg;
}

/* Keeps `parent`'s children in the order of items, one element a key: made once, then updated. */
export class Keyed {
    constructor(parent, make, update, leave = () => {}) {
        Object.assign(this, { parent, make, update, leave, elements: new Map() });
    }

    show(items, key = (item) => item.id) {
        const wanted = new Set(items.map(key));
        const focused = document.activeElement;
        for (const [id, element] of this.elements) {
            if (!wanted.has(id)) {
                this.leave(element, id);
                element.remove();
                this.elements.delete(id);
            }
        }
        let next = this.parent.firstChild;
        for (const item of items) {
            let element = this.elements.get(key(item));
            if (!element) {
                element = this.make(item);
                this.elements.set(key(item), element);
            }
            this.update(element, item);
            if (element === next)
                next = next.nextSibling;
            else
                this.parent.insertBefore(element, next);
        }
        if (focused && focused !== document.activeElement && this.parent.contains(focused))
            focused.focus({ preventScroll: true });
    }

    clear() {
        this.show([]);
    }
}

export const delay = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/* Calls f at most once in ms, the last time included. */
export function throttle(ms, f) {
    let timer = null;
    let again = false;
    const run = () => {
        timer = setTimeout(() => {
            timer = null;
            if (again) {
                again = false;
                run();
            }
        }, ms);
        f();
    };
    const call = () => {
        if (timer)
            again = true;
        else
            run();
    };
    call.stop = () => {
        clearTimeout(timer);
        timer = null;
        again = false;
    };
    return call;
}
