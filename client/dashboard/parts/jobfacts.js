/*
 * jobfacts: what a job is made of, and the checkpoints it has left.
 */
import * as api from '../api.js';
import { copyButton, emptyLine } from './controls.js';
import { el, icon } from './dom.js';
import * as format from './format.js';

const hyperparameterNames = {
    n_epochs: 'Epochs', batch_size: 'Batch size', learning_rate: 'Learning rate',
        lora_rank: 'LoRA rank',
    lora_alpha: 'LoRA alpha', max_len: 'Longest line, tokens', val_split: 'Held out',
        numerics: 'Numerics',
    precision: 'Precision', overlong: 'Overlong lines', data_rules: 'Data rules',
};

function fact(name, ...value) {
    return value.every((one) => one === null || one === undefined || one === '') ? null :
        [el('dt', {}, name), el('dd', {}, value)];
}

function withCopy(label, value) {
    return el('span', { class: 'copyable' }, el('code', { class: 'wrap' }, value),
        copyButton(label, value));
}

function card(title, ...facts) {
    const id = `facts-${title.toLowerCase().replace(/\W+/g, '-')}`;
    return el('section', { class: 'card stack', 'aria-labelledby': id }, el('h2', { id }, title),
        el('dl', { class: 'facts' }, facts));
}

function hyperparameters(job) {
    return card('Hyper-parameters', Object.entries(hyperparameterNames).map(([key, name]) => {
        const value = job.hyperparameters[key];
        return fact(name, value === undefined || value === null ? null :
            key === 'val_split' ? format.percent(value) :
                typeof value === 'number' ? format.number(value) : value);
    }), fact('Seed', String(job.seed)));
}

function data(job, files) {
    const plan = job.plan || {};
    const about = plan.training_data;
    return card('Data',
        job.training_files.map((id, i) => fact(i ? '' : 'Training', files.get(id) || id)),
        job.validation_files.map((id, i) => fact(i ? '' : 'Validation', files.get(id) || id)),
        fact('Examples', plan.training_examples === undefined ? about ?
            format.count(about.examples) : null :
            `${format.count(plan.training_examples)} trained, ` +
            `${format.count(plan.validation_examples)} held out`),
        about ? [fact('Tokens',
            `${format.count(about.tokens)}, of them ${format.count(about.target_tokens)} trained`),
                 fact('Longest line', format.plural(about.longest_line, 'token'))] : null,
        fact('Steps', plan.total_steps ?
            `${format.count(plan.total_steps)}, ${format.count(plan.steps_per_epoch)} an epoch` :
                null),
        fact('Warm-up', plan.warmup_steps ? format.plural(plan.warmup_steps, 'step') : null));
}

function run(job) {
    const memory = job.plan && job.plan.memory;
    const spent = job.started_at && job.finished_at ? job.finished_at - job.started_at : null;
    return card('Run',
        fact('Job', withCopy('Copy the id of the job', job.id)),
        fact('Model', job.fine_tuned_model ? withCopy('Copy the id of the model',
            job.fine_tuned_model) : null),
        fact('Base', job.base_model), fact('Goes on from', job.parent_model),
        fact('Device', job.device_used || (job.device === 'auto' ? 'any' : job.device)),
        fact('Memory', memory ? format.bytes(memory.total_bytes) : null),
        fact('Created', format.moment(job.created_at)),
        fact('Started', job.started_at ? format.moment(job.started_at) : null),
        fact('Ended', job.finished_at ? format.moment(job.finished_at) : null),
        fact('Took', spent === null ? null : format.duration(spent)),
        fact('Trained tokens', job.trained_tokens ? format.count(job.trained_tokens) : null),
        fact('Attempts', job.attempts > 1 ? String(job.attempts) : null),
        Object.entries(job.metadata || {}).map(([name, value]) => fact(name, value)));
}

export class Facts {
    constructor() {
        this.element = el('div', { class: 'facts-cards' });
        this.files = new Map();
    }

    async show(job) {
        const wanted = [...job.training_files, ...job.validation_files].filter((id) =>
            !this.files.has(id));
        this.draw(job);
        await Promise.all(wanted.map(async (id) => {
            const file = await api.get(`/v1/files/${api.part(id)}`).catch(() => null);
            this.files.set(id, file ? file.filename : `${id} (deleted)`);
        }));
        if (wanted.length)
            this.draw(job);
    }

    draw(job) {
        const key = JSON.stringify([job.plan, job.status, job.device_used, job.fine_tuned_model,
            job.attempts,
                                    [...this.files]]);
        if (key === this.key)
            return; /* a focus or a selection in it stays */
        this.key = key;
        this.element.replaceChildren(run(job), data(job, this.files), hyperparameters(job));
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

export function adapterPath(model) {
    return api.url(`/v1/models/${api.part(model)}/adapter.safetensors`);
}

export class Checkpoints {
    constructor(id) {
        this.id = id;
        this.body = el('tbody', {});
        const names = ['Step', 'Training loss', 'Validation loss'];
        this.table = el('div', { class: 'card card-flush', hidden: true },
            el('div', { class: 'table-scroll checkpoints-scroll', tabindex: 0, role: 'region',
                        'aria-label': 'Table of checkpoints' },
                el('table', { class: 'table' }, el('thead', {}, el('tr', {},
                    names.map((name) => el('th', { scope: 'col', class: 'num' }, name)),
                    el('th', { scope: 'col' }, el('span', { class: 'visually-hidden' },
                        'Download')))), this.body)));
        this.none = el('div', {});
        this.element = el('section', { class: 'section', 'aria-labelledby': 'checkpoints' },
            el('div', { class: 'section-head' }, el('h2', { id: 'checkpoints' }, 'Checkpoints')),
                this.table, this.none);
    }

    async read() {
        const page = await api.get(`${api.jobPath(this.id, 'checkpoints')}?limit=100`);
        const best = Math.min(...page.data.map(({ metrics }) =>
            metrics.full_valid_loss).filter(Number.isFinite));
        this.body.replaceChildren(...page.data.map((one) => el('tr', {},
            el('td', { class: 'num' }, format.count(one.step_number)),
            el('td', { class: 'num' }, format.loss(one.metrics.train_loss)),
            el('td', { class: 'num' }, one.metrics.full_valid_loss === best &&
                page.data.length > 1 ?
                el('span', { class: 'tag tag-good' }, 'best') : null, ' ',
                    format.loss(one.metrics.full_valid_loss)),
            el('td', { class: 'num' }, el('a', {
                class: 'button button-quiet button-icon button-small', download: true,
                    title: 'Adapter',
                href: adapterPath(one.fine_tuned_model_checkpoint),
                'aria-label': `Download the adapter of step ${one.step_number}` },
                    icon('download'))))));
        this.table.hidden = page.data.length === 0;
        this.none.replaceChildren(page.data.length ? '' : this.hasEnded ?
            emptyLine('None.', 'It ended before its first epoch did.') :
            emptyLine('None yet.', 'One is kept at the end of each epoch.'));
    }
}
