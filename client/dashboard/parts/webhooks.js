/*
 * webhooks: addresses that are told when jobs end.
 */
import * as api from '../api.js';
import { act, confirm, copyButton, emptyLine, errorNotice, notice } from './controls.js';
import { el, icon } from './dom.js';
import { announce } from './page.js';

const path = (id, rest = '') => `/v1/webhook_endpoints/${api.part(id)}${rest}`;

export class Webhooks {
    constructor(mayChange) {
        this.mayChange = mayChange;
        this.place = el('div', { 'aria-live': 'polite' });
        this.list = el('ul', { class: 'card card-flush hooks', hidden: true });
        this.none = emptyLine('No webhook.',
            'An address that is told when a job ends. Its host must stand in the setting ' +
            'webhook_hosts.');
        this.none.hidden = true;
        this.element = el('section', { class: 'section', 'aria-labelledby': 'webhooks' },
            el('div', { class: 'section-head' }, el('h2', { id: 'webhooks' }, 'Webhooks')),
                this.place,
            mayChange ? this.makeForm() : null, this.list, this.none);
    }

    makeForm() {
        const url = el('input', { class: 'input', id: 'hook-url', type: 'url', required: true,
            placeholder: 'https://', autocomplete: 'off' });
        const button = el('button', { class: 'button', type: 'submit' }, icon('new'),
            'Add a webhook');
        const form = el('form', { class: 'card hook-form' }, el('div', { class: 'field' },
            el('label', { for: 'hook-url' }, 'Address'), url), button);

        form.addEventListener('submit', (event) => {
            event.preventDefault();
            act(button, this.place, async () => {
                const hook = await api.post('/v1/webhook_endpoints', { url: url.value.trim() });
                form.reset();
                this.place.replaceChildren(notice('success',
                    el('p', {}, el('strong', {}, 'Its signing secret, shown now and never again:')),
                    el('div', { class: 'command' }, el('code', { tabindex: 0 },
                        hook.signing_secret), copyButton('Copy the secret', hook.signing_secret))));
                await this.read();
            });
        });
        return form;
    }

    row(hook) {
        const test = el('button', { class: 'button button-small', type: 'button',
            'aria-label': `Test ${hook.url}`, onclick: () =>
            act(test, this.place, async () => {
                const told = await api.post(path(hook.id, '/test'), {});
                this.place.replaceChildren(notice(told.success ? 'success' : 'warn',
                    el('p', {}, `${hook.url} answered ${told.status_code}.`)));
            }) }, 'Test');
        const remove = el('button', { class: 'button button-small', type: 'button',
            'aria-label': `Remove ${hook.url}`, onclick: async () => {
            if (await confirm('Remove this webhook?', `${hook.url} is told nothing more.`,
                'Remove'))
                act(remove, this.place, async () => {
                    await api.del(path(hook.id));
                    announce('Removed');
                    await this.read();
                });
        } }, 'Remove');
        return el('li', { class: 'hook' }, el('span', { class: 'hook-url wrap' }, hook.url),
            hook.enabled ? null : el('span', { class: 'tag' }, 'off'),
                this.mayChange ? el('span', { class: 'row' }, test, remove) : null);
    }

    async read() {
        try {
            const hooks = await api.all('/v1/webhook_endpoints', 100);
            this.list.replaceChildren(...hooks.map((hook) => this.row(hook)));
            this.list.hidden = hooks.length === 0;
            this.none.hidden = hooks.length > 0;
        } catch (error) {
            if (error.status !== 401)
                this.place.replaceChildren(errorNotice(error));
        }
    }
}
