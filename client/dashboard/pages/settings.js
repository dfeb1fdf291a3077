/*
 * settings: who is signed in, the API keys, webhooks, and how the daemon is.
 *
 * Each section is left out where the caller may not use it.
 */
import * as api from '../api.js';
import * as feed from '../feed.js';
import * as session from '../session.js';
import { el, icon } from '../parts/dom.js';
import { errorNotice } from '../parts/controls.js';
import * as format from '../parts/format.js';
import { setTitle } from '../parts/page.js';
import { Keys } from '../parts/keys.js';
import { Webhooks } from '../parts/webhooks.js';

function fact(name, ...value) {
    return value.every((one) => one === null || one === undefined) ? null :
        [el('dt', {}, name), el('dd', {}, value)];
}

function signedIn(who) {
    const place = el('div', {});
    const leave = el('button', { class: 'button', type: 'button', onclick: async () => {
        feed.stop(); /* its stream ends with the session */
        try {
            await session.signOut();
        } catch (error) {
            feed.start();
            place.replaceChildren(errorNotice(error));
        }
    } }, 'Sign out');

    if (!who.key_needed)
        return el('section', { class: 'card stack', 'aria-labelledby': 'you' },
            el('h2', { id: 'you' }, 'Access'),
            el('p', {},
                'No API key has been made yet. Whoever reaches this address may do ' +
                'everything; the daemon listens on this machine alone until there is a key.'));
    return el('section', { class: 'card stack', 'aria-labelledby': 'you' },
        el('div', { class: 'section-head' }, el('h2', { id: 'you' }, 'Signed in'),
            who.expires_at ? leave : null), place,
        el('dl', { class: 'facts' },
            fact('Key', who.name || (who.key_id ? who.key_id : 'of the settings')),
            fact('Scope', who.scope),
            fact('Until', who.expires_at ? format.moment(who.expires_at) : null)));
}

const healthNames = { ok: 'Everything works', degraded: 'Something is amiss',
    failing: 'It does not work' };

async function daemonCard() {
    const [health, description, billing] = await Promise.all([
        api.get('/healthz').catch(() => null), api.get('/v1/openapi.json').catch(() => null),
        api.get('/v1/billing').catch(() => null)]);
    const disk = health && health.disk;
    const limit = (x, f) => x === null || x === undefined ? 'no limit' : f(x);

    return el('section', { class: 'card stack', 'aria-labelledby': 'daemon' },
        el('h2', { id: 'daemon' }, 'Daemon'),
        el('dl', { class: 'facts' },
            fact('Version', description && description.info.version),
            fact('State', health ? healthNames[health.status] || health.status : 'unknown',
                health && health.reason ? `: ${health.reason}` : ''),
            fact('Database', health && `${health.database}; ${health.durability}`),
            fact('Free disk', disk && disk.free_bytes !== null ? format.bytes(disk.free_bytes) :
                null),
            billing ?
                [fact('Stored files',
                    `${format.bytes(billing.usage.bytes)}, ` +
                    limit(billing.limits.bytes, format.bytes)),
                       fact('Unfinished jobs',
                           `${format.count(billing.usage.jobs)}, ` +
                               limit(billing.limits.jobs, format.count))] : null),
        el('div', { class: 'row' },
            el('a', { class: 'button', href: api.url('/v1/openapi.json'),
                download: 'openapi.json' }, icon('download'), 'Description of the API'),
            el('a', { class: 'button', href: api.url('/metrics'), target: '_blank',
                rel: 'noopener' }, 'Figures for Prometheus')));
}

export async function show(main) {
    setTitle('Settings');
    const who = await session.read();
    const parts = [];

    main.append(el('h1', {}, 'Settings'));
    const cards = el('div', { class: 'settings-cards' }, signedIn(who));
    main.append(cards);
    if (session.isAdmin(who)) {
        const keys = new Keys(who,
            () => api.get('/v1/session').then((now) =>
                cards.firstChild.replaceWith(signedIn(now))));
        main.append(keys.element);
        parts.push(keys.read());
    }
    if (await api.has('get', '/v1/webhook_endpoints')) {
        const webhooks = new Webhooks(session.maySubmit(who));
        main.append(webhooks.element);
        parts.push(webhooks.read());
    }
    parts.push(daemonCard().then((card) => cards.append(card)));
    await Promise.all(parts);
    return null;
}
