/*
 * models: the bases, what jobs made of them, and each one's origin and files.
 */
import * as api from '../api.js';
import * as session from '../session.js';
import { act, confirm, copyButton, empty, errorNotice } from '../parts/controls.js';
import { el, icon, text } from '../parts/dom.js';
import * as format from '../parts/format.js';
import { announce, setTitle } from '../parts/page.js';

const PAGE = 50;
const SEARCH_MS = 250;

const isCheckpoint = (model) => model.step_number !== undefined;
const modelAddress = (id) => `#/models/${api.part(id)}`;
const adapterUrl = (id) => api.url(`/v1/models/${api.part(id)}/adapter.safetensors`);

function download(model, small) {
    return el('a', {
        class: small ? 'button button-quiet button-icon button-small' : 'button button-primary',
        download: true, href: adapterUrl(model.id), title: 'Adapter',
        'aria-label': small ? `Download the adapter of ${model.name}` : null },
        icon('download'), small ? null : `adapter.safetensors, ${format.bytes(model.bytes)}`);
}

/* ---- the list -------------------------------------------------------------------------------- */

function baseCard(model) {
    return el('li', { class: 'card stack base' },
        el('h3', {}, el('a', { href: modelAddress(model.id) }, model.name)),
        el('dl', { class: 'facts' }, el('dt', {}, 'Parameters'),
            el('dd', {}, format.count(model.parameters)),
            el('dt', {}, 'Layers'), el('dd', {}, format.count(model.depth)),
            el('dt', {}, 'Longest line'), el('dd', {}, format.plural(model.max_seq_len, 'token'))),
        el('a', { class: 'button base-train changes', href: `#/new?model=${api.part(model.id)}` },
            icon('new'), 'Train it'));
}

function modelRow(model) {
    return el('tr', {},
        el('td', { class: 'model-name' },
            el('a', { class: 'cut', href: modelAddress(model.id), title: model.id }, model.name),
            el('span', { class: 'small faint cut', title: model.id }, model.id)),
        el('td', { class: 'cut model-base', title: model.base_model }, model.base_model),
        el('td', { class: 'num' }, format.loss(model.valid_loss)),
        el('td', { class: 'num' }, isCheckpoint(model) ? format.count(model.step_number) : '–'),
        el('td', { class: 'num' }, format.bytes(model.bytes)),
        el('td', { class: 'num', title: format.moment(model.created) }, format.ago(model.created)),
        el('td', { class: 'num' }, download(model, true)));
}

class List {
    constructor(models) {
        this.bases = models.filter((model) => model.base_model === undefined);
        this.tuned = models.filter((model) => model.base_model !== undefined);
        this.shown = PAGE;
        this.body = el('tbody', {});
        this.table = el('div', { class: 'card card-flush models-table' },
            el('div', { class: 'table-scroll', tabindex: 0, role: 'region',
                'aria-label': 'Table of models' },
            el('table', { class: 'table' }, el('thead', {},
                el('tr', {}, ['Model', 'Base', 'Validation loss', 'Step', 'Size', 'Made', ''].map(
                (name, i) => el('th', { scope: 'col', class: i > 1 ? 'num' : null },
                    name || el('span', { class: 'visually-hidden' }, 'Download'))))),
            this.body)));
        this.none = el('div', {});
        this.more = el('button', { class: 'button', type: 'button',
            onclick: () => { this.shown += PAGE; this.draw(); } }, 'Show more');
        this.count = el('span', { class: 'count' });
        this.search = el('input', { class: 'input', type: 'search', placeholder: 'Name or id',
            'aria-label': 'Search models', autocomplete: 'off', spellcheck: 'false' });
        this.checkpoints = el('input', { type: 'checkbox', onchange: () => this.draw() });
        let timer = null;
        this.search.addEventListener('input', () => {
            clearTimeout(timer);
            timer = setTimeout(() => {
                this.shown = PAGE;
                this.draw();
                announce(`${this.count.textContent} found`);
            }, SEARCH_MS);
        });
    }

    place(main) {
        main.append(
            el('section', { class: 'section', 'aria-labelledby': 'tuned' },
                el('div', { class: 'section-head' }, el('h2', { id: 'tuned' }, 'Fine-tuned',
                    this.count),
                    el('label', { class: 'check small' }, this.checkpoints, ' With checkpoints'),
                    el('div', { class: 'search' }, icon('search'), this.search)),
                this.table, this.none, el('div', { class: 'row' }, this.more)),
            el('section', { class: 'section', 'aria-labelledby': 'bases' },
                el('div', { class: 'section-head' }, el('h2', { id: 'bases' }, 'Bases')),
                this.bases.length ? el('ul', { class: 'grid' }, this.bases.map(baseCard)) :
                    empty('No base model.',
                        el('p', {},
                            'Put base.safetensors and tokenizer.model into a folder of models/ ' +
                            'in the state folder.'))));
        this.draw();
    }

    draw() {
        const words = this.search.value.trim().toLowerCase();
        const found = this.tuned.filter((model) =>
            (this.checkpoints.checked || !isCheckpoint(model)) &&
            (!words || model.id.toLowerCase().includes(words) ||
                model.name.toLowerCase().includes(words)));
        this.body.replaceChildren(...found.slice(0, this.shown).map(modelRow));
        text(this.count, format.count(found.length));
        this.table.hidden = found.length === 0;
        this.more.hidden = found.length <= this.shown;
        this.none.replaceChildren(...(found.length ? [] : [this.tuned.length ?
            empty('Nothing found', el('p', {}, 'No model has that in its name or id.')) :
            empty('Nothing fine-tuned yet',
                el('p', {}, 'A job that succeeds leaves its model here.'),
                el('a', { class: 'button button-primary changes', href: '#/new' }, icon('new'),
                    'New job'))]));
    }
}

async function showList(main) {
    setTitle('Models');
    main.append(el('h1', {}, 'Models'));
    new List((await api.get('/v1/models')).data).place(main);
    return null;
}

/* ---- one model ------------------------------------------------------------------------------- */

function fact(name, ...value) {
    return value.every((one) => one === null || one === undefined || one === '') ? null :
        [el('dt', {}, name), el('dd', {}, value)];
}

function digest(words, value) {
    return value ? el('span', { class: 'copyable' },
        el('code', { class: 'cut digest', title: value }, value), copyButton(words, value)) : null;
}

function lineageCard(model, job, files, parents) {
    const chain = [model.base_model, ...parents];
    return el('section', { class: 'card stack', 'aria-labelledby': 'origin' },
        el('h2', { id: 'origin' }, 'Where it comes from'),
        el('ol', { class: 'chain' },
            chain.map((id) => el('li', {}, el('a', { href: modelAddress(id), class: 'wrap' }, id))),
            el('li', { 'aria-current': 'true' }, el('span', { class: 'wrap' }, model.name))),
        el('dl', { class: 'facts' },
            fact('Job', job ? el('a', { href: `#/jobs/${job.id}` }, job.name) :
                `${model.fine_tuning_job_id} (gone)`),
            files.map((file) => [fact('Data', file.filename || `${file.id} (deleted)`),
                                 fact('Its digest', digest('Copy the digest of the data',
                                     file.sha256))]),
            fact('Made', format.moment(model.created)), fact('On', model.device),
            fact('Numerics', model.numerics),
            isCheckpoint(model) ? fact('Step', format.count(model.step_number)) :
                job ? fact('Steps', format.count(job.completed_steps)) : null,
            fact('Validation loss', model.valid_loss === null || model.valid_loss === undefined ?
                null : format.loss(model.valid_loss)),
            job ? [fact('Seed', String(job.seed)),
                   fact('Epochs', String(job.hyperparameters.n_epochs)),
                   fact('Learning rate', format.number(job.hyperparameters.learning_rate)),
                   fact('LoRA',
                       `rank ${job.hyperparameters.lora_rank}, ` +
                       `alpha ${format.number(job.hyperparameters.lora_alpha)}`)] : null));
}

function filesCard(model) {
    return el('section', { class: 'card stack', 'aria-labelledby': 'files' },
        el('h2', { id: 'files' }, 'Files'),
        el('div', { class: 'row' }, download(model)),
        el('dl', { class: 'facts' }, fact('SHA-256',
            digest('Copy the digest of the adapter', model.sha256))));
}

/* The models that it went on from, the oldest first. */
async function parentsOf(model) {
    const parents = [];
    let id = model.parent_model;
    while (id && parents.length < 20 && !parents.includes(id)) {
        parents.unshift(id);
        id = await api.get(`/v1/models/${api.part(id)}`).then((one) => one.parent_model,
            () => null);
    }
    return parents;
}

function deleteButton(model, place) {
    const button = el('button', { class: 'button', type: 'button', onclick: async () => {
        if (await confirm(`Delete ${model.name}?`,
            'Its adapter is removed from this machine. That cannot be undone.', 'Delete'))
            act(button, place, async () => {
                await api.del(`/v1/models/${api.part(model.id)}`);
                announce('Deleted');
                location.hash = '#/models';
            });
    } }, 'Delete');
    return button;
}

function showBase(main, model) {
    main.append(el('div', { class: 'page-head' },
        el('div', {}, el('p', { class: 'small' }, el('a', { href: '#/models' }, 'Models')),
            el('h1', {}, model.name)),
        el('a', { class: 'button button-primary changes',
            href: `#/new?model=${api.part(model.id)}` }, icon('new'), 'Train it')),
    el('section', { class: 'card' }, el('dl', { class: 'facts' },
        fact('Parameters', format.count(model.parameters)),
        fact('Layers', format.count(model.depth)),
            fact('Longest line', format.plural(model.max_seq_len, 'token')))));
}

async function showModel(main, id) {
    const [model, who] = await Promise.all([api.get(`/v1/models/${api.part(id)}`),
        session.known()]);
    const place = el('div', {});

    setTitle(model.name);
    if (model.base_model === undefined) {
        showBase(main, model);
        return null;
    }
    const [job, parents] = await Promise.all([
        api.get(api.jobPath(model.fine_tuning_job_id)).catch(() => null), parentsOf(model)]);
    const files = await Promise.all((job ? job.training_files : []).map((file) =>
        api.get(`/v1/files/${api.part(file)}`).catch(() => ({ id: file }))));
    main.append(
        el('div', { class: 'page-head' },
            el('div', { class: 'model-title' }, el('p', { class: 'small' },
                el('a', { href: '#/models' }, 'Models')), el('h1', { class: 'wrap' }, model.name),
                el('p', { class: 'copyable' }, el('code', { class: 'wrap small' }, model.id),
                    copyButton('Copy the id of the model', model.id))),
            el('div', { class: 'row' },
                session.maySubmit(who) ? el('a', { class: 'button',
                    href: `#/new?model=${api.part(model.id)}` },
                    icon('new'), 'Go on from it') : null,
                session.mayChange(model) ? deleteButton(model, place) : null)),
        place,
        el('div', { class: 'model-cards' }, lineageCard(model, job, files, parents),
            filesCard(model)));
    return null;
}

export async function show(main, params) {
    if (!params.id)
        return showList(main);
    try {
        return await showModel(main, params.id);
    } catch (error) {
        if (error.status !== 404)
            throw error;
        setTitle('No such model');
        main.append(el('h1', {}, 'No such model'), errorNotice(error),
            el('p', {}, el('a', { class: 'button', href: '#/models' }, 'All models')));
        return null;
    }
}
