/*
 * keys: the API keys; making one, which is shown once, and ending one.
 */
import * as api from '../api.js';
import * as session from '../session.js';
import { act, confirm, copyButton, emptyLine, errorNotice, notice } from './controls.js';
import { el, icon } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';

const scopes = [['read', 'read: looks only'], ['submit', 'submit: makes jobs'],
    ['admin', 'admin: everything']];

const COLUMNS = ['Name', 'Scope', 'Ends with', 'Limits', 'Made', 'Last used', ''];

function limits(key) {
    const parts = [key.jobs_max ? format.plural(key.jobs_max, 'job') : null,
        key.bytes_max ? format.bytes(key.bytes_max) : null];
    return parts.filter(Boolean).join(', ') || 'none';
}

function number(input, factor = 1) {
    return input.value.trim() === '' ? undefined : Math.round(Number(input.value) * factor);
}

export class Keys {
    /* who: the session; changed: called when the first key closed the daemon. */
    constructor(who, changed) {
        this.who = who;
        this.changed = changed;
        this.body = el('tbody', {});
        this.table = el('div', { class: 'card card-flush', hidden: true },
            el('div', { class: 'table-scroll', tabindex: 0, role: 'region',
                        'aria-label': 'Table of API keys' },
                el('table', { class: 'table' },
                    el('thead', {}, el('tr', {}, COLUMNS.map((name) => el('th', { scope: 'col' },
                        name || el('span', { class: 'visually-hidden' }, 'Revoke'))))),
                    this.body)));
        this.none = emptyLine('No key yet.', 'With the first one every call needs a key.');
        this.place = el('div', { 'aria-live': 'polite' });
        this.element = el('section', { class: 'section', 'aria-labelledby': 'keys' },
            el('div', { class: 'section-head' }, el('h2', { id: 'keys' }, 'API keys')), this.place,
                this.makeForm(), this.table, this.none);
        this.none.hidden = true;
    }

    makeForm() {
        const name = el('input', { class: 'input', id: 'key-name', required: true, maxlength: 100,
            autocomplete: 'off' });
        const scope = el('select', { class: 'select', id: 'key-scope' },
            scopes.map(([value, words]) => el('option', { value }, words)));
        const jobs = el('input', { class: 'input', id: 'key-jobs', type: 'number', min: 1,
            max: 1000000, placeholder: 'no limit' });
        const bytes = el('input', { class: 'input', id: 'key-bytes', type: 'number', min: 0.001,
            step: 'any', placeholder: 'no limit' });
        const button = el('button', { class: 'button button-primary', type: 'submit' }, icon('new'),
            'Make a key');
        const field = (input, label, hint) => el('div', { class: 'field' },
            el('label', { for: input.id }, label), input,
            hint ? el('p', { class: 'hint' }, hint) : null);
        const form = el('form', { class: 'card key-form' }, field(name, 'Name of the new key'),
            field(scope, 'Scope'),
            field(jobs, 'Unfinished jobs at most'), field(bytes, 'Stored files at most, GB'),
                button);

        scope.value = this.who.key_needed ? 'submit' : 'admin';
        form.addEventListener('submit', (event) => {
            event.preventDefault();
            act(button, this.place, async () => {
                const key = await api.post('/v1/keys',
                    { name: name.value.trim(), scope: scope.value, jobs_max: number(jobs),
                                                         bytes_max: number(bytes, 1e9) });
                form.reset();
                await this.tell(key);
                await this.read();
            });
        });
        return form;
    }

    /* The first key closes the daemon: this browser goes on with it. */
    async tell(key) {
        const first = !this.who.key_needed;
        if (first)
            this.who = await session.signIn(key.key);
        this.place.replaceChildren(notice('success',
            el('p', {},
                el('strong', {},
                    `This is the key "${key.name}". It is shown now and never again.`)),
            el('div', { class: 'command' }, el('code', { tabindex: 0, id: 'new-key' }, key.key),
                copyButton('Copy the key', key.key)),
            first ? el('p', {},
                'From now on every call needs a key. This browser is signed in with this one.') :
                    null));
        announce('The key was made. It is shown once.');
        if (first)
            this.changed();
    }

    row(key) {
        const ended = key.revoked_at !== null;
        const button = ended ? el('span', { class: 'tag' }, 'revoked') : el('button', {
            class: 'button button-small', type: 'button',
                'aria-label': `Revoke the key ${key.name}`, onclick: async () => {
                const self = key.id === this.who.key_id ?
                    ' You are signed in with it: you will be signed out.' : '';
                if (await confirm(`Revoke the key "${key.name}"?`,
                    `Whoever uses it is refused from then on, at once.${self}`, 'Revoke'))
                    act(button, this.place, async () => {
                        await api.del(`/v1/keys/${api.part(key.id)}`);
                        announce('Revoked');
                        await this.read();
                    });
            } }, 'Revoke');
        return el('tr', { class: ended ? 'faint' : null },
            el('td', { class: 'wrap key-name' }, key.name), el('td', {}, key.scope),
                el('td', {}, el('code', {}, `…${key.hint}`)),
            el('td', { class: 'nowrap' }, limits(key)),
                el('td', { class: 'nowrap', title: format.moment(key.created_at) },
                    format.ago(key.created_at)),
            el('td', { class: 'nowrap' }, key.last_used_at ? format.ago(key.last_used_at) :
                'never'),
            el('td', { class: 'num' }, button));
    }

    async read() {
        try {
            const keys = await api.all('/v1/keys');
            this.body.replaceChildren(...keys.map((key) => this.row(key)));
            this.table.hidden = keys.length === 0;
            this.none.hidden = keys.length > 0;
        } catch (error) {
            if (error.status !== 401)
                this.place.replaceChildren(errorNotice(error));
        }
    }
}
