/*
 * controls: what several pages show the same way.
 */
import { el, icon, set, text } from './dom.js';
import { stateNames } from './format.js';
import { announce } from './page.js';

/* A job's state as a word with a colour and a dot. */
export function badge(state) {
    return showBadge(el('span', {}), state);
}

export function showBadge(element, state) {
    if (element.dataset.state !== state) {
        element.className = 'badge';
        element.dataset.state = state;
        text(element, stateNames[state] || state);
    }
    return element;
}

/* Bytes in the clipboard, also where the page's address is not secure. */
async function copy(value) {
    if (navigator.clipboard && window.isSecureContext) {
        await navigator.clipboard.writeText(value);
        return;
    }
    const area = el('textarea', { class: 'visually-hidden', readonly: true });
    area.value = value;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
}

/* Copies value, or what value() gives; label names it: "Copy the command". */
export function copyButton(label, value, words = '') {
    const button = el('button', {
        class: words ? 'button' : 'button button-quiet button-icon', type: 'button', title: label,
        'aria-label': words ? null : label,
    }, icon('copy'), words);
    button.addEventListener('click', async () => {
        await copy(typeof value === 'function' ? value() : value);
        button.firstChild.replaceWith(icon('check'));
        button.classList.add('is-done');
        announce('Copied');
        setTimeout(() => {
            button.firstChild.replaceWith(icon('copy'));
            button.classList.remove('is-done');
        }, 1600);
    });
    return button;
}

/* A command with its copy button. */
export function command(value, label = 'Copy the command') {
    return el('div', { class: 'command' },
        el('code', { tabindex: 0 }, value), copyButton(label, value));
}

/* kind: info, warn, error, success */
export function notice(kind, ...children) {
    return el('div', { class: 'notice', 'data-kind': kind,
        role: kind === 'error' ? 'alert' : null },
        icon({ info: 'info', success: 'check' }[kind] || 'warn'),
        el('div', { class: 'notice-body' }, children));
}

/* An ApiError with all that helps: the field at fault, the lines of the data. */
export function errorNotice(error, ...actions) {
    const lines = error.lines || [];
    const isNamed = !error.param || error.message.includes(`'${error.param.split('.').pop()}'`);
    return notice('error', el('p', {}, isNamed ? null : [el('code', {}, error.param), ' '],
        error.message),
        lines.length ? lineList(lines) : null,
        actions.length ? el('div', { class: 'row' }, actions) : null);
}

/* Lines of a file that were not taken, each with its place and reason; of several files with its
 * file. */
export function lineList(lines, hasFiles = false) {
    return el('div', { class: 'table-scroll lines', tabindex: 0, role: 'region',
        'aria-label': 'Lines' },
        el('table', { class: 'table table-dense' },
            el('thead', {}, el('tr', {}, ['Line', 'Column', 'Field', 'Reason'].map((name, i) =>
                el('th', { scope: 'col', class: i < 2 ? 'num' : null }, name)),
                hasFiles ? el('th', { scope: 'col' }, 'File') : null)),
            el('tbody', {}, lines.map((line) => el('tr', {},
                el('td', { class: 'num' }, line.line || '–'),
                    el('td', { class: 'num' }, line.column || '–'),
                el('td', { class: 'nowrap' }, line.field ? el('code', {}, line.field) : '–'),
                el('td', { class: 'wrap' }, line.reason),
                hasFiles ? el('td', { class: 'wrap' }, line.file || '–') : null)))));
}

/* Asks before what cannot be undone; resolves to true for yes. */
export function confirm(question, details, yes) {
    return new Promise((resolve) => {
        const dialog = el('dialog', { class: 'dialog', 'aria-labelledby': 'dialog-title' },
            el('form', { method: 'dialog' },
                el('h2', { id: 'dialog-title' }, question), el('p', { class: 'muted' }, details),
                el('div', { class: 'row row-end' },
                    el('button', { class: 'button', value: 'no', autofocus: true }, 'Back'),
                    el('button', { class: 'button button-danger', value: 'yes' }, yes))));
        dialog.addEventListener('close', () => {
            dialog.remove();
            resolve(dialog.returnValue === 'yes');
        });
        document.body.append(dialog);
        dialog.showModal();
    });
}

/* Runs an action of a button: busy meanwhile, its error told beside it once. */
export async function act(button, place, f) {
    if (button.getAttribute('aria-busy') === 'true')
        return;
    set(button, { 'aria-busy': 'true' });
    place.replaceChildren();
    try {
        await f();
    } catch (error) {
        if (error.status !== 401)
            place.replaceChildren(errorNotice(error));
    } finally {
        set(button, { 'aria-busy': null });
    }
}

export function empty(title, ...children) {
    return el('div', { class: 'empty' }, el('p', { class: 'empty-title' }, title), children);
}

/* The same on one line, where nothing is to be done about it. */
export function emptyLine(title, words) {
    return el('div', { class: 'empty empty-small' }, el('p', { class: 'empty-title' }, title),
        el('p', {}, words));
}

export function progress(label) {
    return el('div', { class: 'progress', role: 'progressbar', 'aria-label': label,
        'aria-valuemin': 0,
                       'aria-valuemax': 100, 'aria-valuenow': 0 },
                           el('div', { class: 'progress-bar' }));
}

export function setProgress(element, share) {
    const percent = Math.max(0, Math.min(100, share * 100));
    element.firstChild.style.transform = `scaleX(${percent / 100})`;
    element.setAttribute('aria-valuenow', String(Math.round(percent)));
}
