/*
 * signin: the key once; from then on a cookie that scripts cannot read stands for it.
 */
import * as session from '../session.js';
import { el, text } from '../parts/dom.js';
import { command } from '../parts/controls.js';
import { announce, setTitle } from '../parts/page.js';

/* Only ever an address within this page. */
function nextAddress(params) {
    const next = params.query.get('next') || '';
    return next.startsWith('#/') && !next.startsWith('#/signin') ? next : '#/';
}

function form(next) {
    const input = el('input', { id: 'key', class: 'input mono', type: 'password', name: 'key',
        required: true,
        autocomplete: 'current-password', autocapitalize: 'off', spellcheck: 'false',
            'aria-describedby': 'key-error' });
    const error = el('p', { id: 'key-error', class: 'field-error', role: 'alert' });
    const button = el('button', { class: 'button button-primary', type: 'submit' }, 'Sign in');
    const shown = el('input', { type: 'checkbox',
        onchange: () => { input.type = shown.checked ? 'text' : 'password'; } });
    const element = el('form', { class: 'card stack signin-card' },
        el('div', { class: 'field' }, el('label', { for: 'key' }, 'API key'), input, error),
        el('div', { class: 'spread' }, el('label', { class: 'check' }, shown, ' Show it'), button));

    element.addEventListener('submit', async (event) => {
        event.preventDefault();
        text(error, '');
        input.removeAttribute('aria-invalid');
        button.setAttribute('aria-busy', 'true');
        try {
            await session.signIn(input.value.trim());
            announce('Signed in');
            location.replace(next);
        } catch (e) {
            text(error,
                e.status === 401 ? 'This key is none of this server\'s, or it was revoked.' :
                    e.message);
            input.setAttribute('aria-invalid', 'true');
            input.select();
        } finally {
            button.removeAttribute('aria-busy');
        }
    });
    return { element, input };
}

export async function show(main, params) {
    const next = nextAddress(params);
    const who = await session.read();

    setTitle('Sign in');
    if (who.signed_in) {
        main.append(el('h1', {}, who.key_needed ? 'You are signed in' : 'No key is needed here'),
            el('p', { class: 'lead' }, who.key_needed ?
                `With the key ${who.name || 'of the settings'}.` :
                'This daemon has no API key yet: whoever reaches its address may do everything.'),
            el('p', {}, el('a', { class: 'button button-primary', href: next }, 'Go on')));
        return null;
    }
    const { element, input } = form(next);
    main.append(el('div', { class: 'signin' },
        el('div', { class: 'stack' }, el('h1', {}, 'Sign in'),
            el('p', { class: 'lead' },
                'This needled asks for an API key. It is sent once; this browser then keeps a ' +
                'cookie for seven days after your last visit, which ends with the key.')),
        element,
        el('div', { class: 'stack' }, el('h2', {}, 'No key yet?'),
            el('p', { class: 'muted' },
                'Whoever runs this daemon makes one on its machine; it is shown once:'),
            command('needlectl key create laptop --scope submit'))));
    input.focus({ preventScroll: true });
    /* in another tab */
    return session.watch('begun', (isHere) => isHere || location.replace(next));
}
