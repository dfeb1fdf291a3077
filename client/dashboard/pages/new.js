/*
 * new: a file, what is in it, what is to be learned from it, what that will take, and the job.
 *
 * The address may name what it begins with: ?from=JOB (its values again), ?model=MODEL, ?file=FILE.
 */
import * as api from '../api.js';
import * as session from '../session.js';
import { act, errorNotice, notice } from '../parts/controls.js';
import { el, icon, set, text } from '../parts/dom.js';
import * as draft from '../parts/draft.js';
import { Estimate } from '../parts/estimate.js';
import * as format from '../parts/format.js';
import { Hyper, countJobs, firstJob } from '../parts/hyper.js';
import { announce, setTitle } from '../parts/page.js';
import { Example, Report } from '../parts/report.js';
import { Snippets, jobCall } from '../parts/snippets.js';
import { Upload } from '../parts/upload.js';

const SETTLE_MS = 350;
const FILES = 100;

/* Numbered by the style: steps without a file are not there. */
function step(title, id, ...children) {
    return el('section', { class: 'card new-step', 'aria-labelledby': id },
        el('h2', { id }, el('span', { class: 'step-number num', 'aria-hidden': 'true' }), title),
            children);
}

function choose(select, value) {
    if ([...select.options].some((one) => one.value === value))
        select.value = value;
}

const option = (value, words) => el('option', { value }, words);

function modelOptions(models) {
    const group = (label, some, words) => some.length ?
        el('optgroup', { label }, some.map((model) => option(model.id, words(model)))) : null;
    const tuned = models.filter((model) => model.base_model !== undefined);
    return [group('Bases', models.filter((model) => model.base_model === undefined),
        (model) => model.name),
            group('Go on from', tuned.filter((model) => model.step_number === undefined),
                (model) => `${model.name} (${model.id})`),
            group('Go on from a checkpoint',
                tuned.filter((model) => model.step_number !== undefined),
                    (model) => `${model.name} (${model.id})`)].filter(Boolean);
}

/* Of several bases the one that is meant to be trained, not the ones beside it for trying. */
function largest(models) {
    const bases = models.filter((model) => model.base_model === undefined);
    return bases.length ? bases.reduce((most, model) => model.parameters > most.parameters ? model :
        most).id : '';
}

class NewJob {
    constructor(who, models, devices, files) {
        this.models = models;
        this.files = new Map(files.map((file) => [file.id, file]));
        this.upload = new Upload((file) => this.add(file));
        const choice = (id, ask, ...options) => el('select', {
            class: 'select', id: `new-${id}`, 'aria-describedby': `new-${id}-error`,
            onchange: () => this.changed(ask) }, options);
        this.file = choice('file', true);
        this.validation = choice('validation', false);
        this.model = choice('model', true, modelOptions(models));
        this.device = choice('device', false,
            option('', 'auto: a GPU it fits on, else the processor'),
            devices.map((device) => option(device.id, `${device.id}: ${device.name}`)));
        this.priority = el('input', { class: 'input num', id: 'new-priority', inputmode: 'numeric',
                                      autocomplete: 'off', placeholder: '0',
                                      'aria-describedby': 'new-priority-error',
                                      oninput: () => this.changed() });
        this.suffix = el('input', { class: 'input', id: 'new-suffix', maxlength: 64,
                                    autocomplete: 'off', spellcheck: 'false',
                                    'aria-describedby': 'new-suffix-error',
                                    oninput: () => this.changed() });
        /* By the daemon's names, each with what is told beside it. */
        this.controls = { training_file: this.file, validation_file: this.validation,
                          model: this.model, device: this.device, priority: this.priority,
                          suffix: this.suffix };
        this.errors = Object.fromEntries(Object.entries(this.controls).map(([name, { id }]) =>
            [name, el('p', { class: 'field-error', id: `${id}-error` })]));
        this.hyper = new Hyper(() => this.changed());
        this.report = new Report();
        this.example = new Example();
        this.estimate = new Estimate();
        this.snippets = new Snippets(who.key_needed);
        this.place = el('div', {});
        this.kept = el('div', {});
        this.turn = 0;
        this.count = el('span', {}, 'Start the job');
        this.submit = el('button', { class: 'button button-primary new-submit', type: 'button',
            onclick: () => act(this.submit, this.place, () => this.create()) }, icon('play'),
                this.count);
        this.fillFiles();
        api.schema('NewHyperparameters').then(({ properties }) =>
            this.hyper.showDefaults(Object.fromEntries(
            [...Object.entries(properties).map(([name, about]) => [name, about.default]),
                ['seed', 0]])), () => {});
    }

    fillFiles() {
        const chosen = this.file.value, held = this.validation.value;
        const all = [...this.files.values()].map((file) => option(file.id,
            [file.filename, format.plural(file.line_count ?? 0, 'line'),
                format.ago(file.created_at)].join(', ')));
        this.file.replaceChildren(option('', this.files.size ? 'Choose …' : 'None yet'), ...all);
        this.validation.replaceChildren(option('', 'none: a share is held out'),
            ...all.map((one) => one.cloneNode(true)));
        this.file.value = chosen;
        this.validation.value = held;
    }

    add(file) {
        this.files = new Map([[file.id, file], ...this.files]);
        this.fillFiles();
        this.file.value = file.id;
        this.changed(true);
    }

    field(name, label, hint) {
        const input = this.controls[name];
        return el('div', { class: 'field' }, el('label', { for: input.id }, label), input,
            this.errors[name], hint ? el('p', { class: 'hint' }, hint) : null);
    }

    /* Tells beside a field what is wrong with it, '' nothing; answers whether something is. */
    refuse(name, words) {
        text(this.errors[name], words);
        set(this.controls[name], { 'aria-invalid': words ? 'true' : null });
        return Boolean(words);
    }

    /* What the daemon refuses stands beside its field too; false: it is none of these. */
    refuseAs(error) {
        const name = String(error.param || '').split('.').pop();
        if (!this.errors[name])
            return Boolean(error.param) && this.hyper.refuse(error.param, error.message);
        this.where.open = this.where.open || this.where.contains(this.controls[name]);
        return this.refuse(name, error.message);
    }

    showIn(main) {
        this.where = el('details', { class: 'more' }, el('summary', {}, 'Where and when'),
            el('div', { class: 'fields fields-two' },
                this.field('validation_file', 'Validation file'), this.field('device', 'Device'),
                this.field('priority', 'Priority',
                    'Among those that wait a higher one goes first.')));
        this.found = step('What is in it', 'new-found', this.report.element);
        this.seen = step('What the model sees', 'new-seen', this.example.element);
        main.append(el('div', { class: 'new' },
            el('div', { class: 'stack-wide new-main' },
                step('Data and base', 'new-data', this.upload.element,
                    el('div', { class: 'fields fields-two' },
                        this.field('training_file', 'Uploaded file'),
                        this.field('model', 'Base model'))),
                this.found, this.seen,
                step('Settings', 'new-settings',
                    el('div', { class: 'fields fields-two' }, this.field('suffix', 'Name',
                        'Letters, digits, dots, dashes; it ends the model\'s id.')),
                    this.hyper.element,
                    this.where)),
            el('aside', { class: 'new-side', 'aria-labelledby': 'new-takes' },
                el('section', { class: 'card stack' },
                    el('h2', { id: 'new-takes' }, 'What it will take'), this.estimate.element,
                        this.place, this.submit),
                el('details', { class: 'card more new-same' },
                    el('summary', {}, 'The same from a shell'), this.snippets.element))));
    }

    /* The create body, or null where something is wrong; what is missing is left to the caller. */
    body() {
        const values = this.hyper.read();
        const suffix = this.suffix.value.trim();
        const priority = this.priority.value.trim();
        for (const name of ['training_file', 'validation_file', 'model', 'device'])
            this.refuse(name, '');
        const misnamed = this.refuse('suffix', suffix && !/^[A-Za-z0-9._-]{1,64}$/.test(suffix) ?
            'Letters, digits, dots, dashes and underscores make a name.' : '');
        const misplaced = this.refuse('priority',
            priority && !(/^[+-]?\d+$/.test(priority) && Math.abs(Number(priority)) <= 100) ?
                'A whole number from -100 to 100 is needed.' : '');
        if (!values || misnamed || misplaced)
            return null;
        const body = { model: this.model.value, training_file: this.file.value };
        if (this.validation.value)
            body.validation_file = this.validation.value;
        if (suffix)
            body.suffix = suffix;
        if (values.seed !== undefined)
            body.seed = values.seed;
        if (this.device.value)
            body.device = this.device.value;
        if (this.priority.value.trim())
            body.priority = Number(this.priority.value);
        if (Object.keys(values.hyperparameters).length)
            body.hyperparameters = values.hyperparameters;
        return body;
    }

    /* What the report depends on. */
    reading() {
        const values = this.hyper.read();
        const one = (value) => Array.isArray(value) ? undefined : value;
        const { max_len, data_rules, overlong } = values ? values.hyperparameters : {};
        return { model: this.model.value || undefined, max_len: one(max_len), data_rules,
            overlong: data_rules ? undefined : overlong };
    }

    changed(now = false) {
        clearTimeout(this.timer);
        this.keep();
        const chosen = this.models.find((model) => model.id === this.model.value);
        this.hyper.fix(Boolean(chosen && chosen.base_model !== undefined));
        this.found.hidden = this.seen.hidden = !this.file.value;
        this.timer = setTimeout(() => this.settle(), now ? 0 : SETTLE_MS);
    }

    async settle() {
        const mine = ++this.turn;
        const body = this.body();
        const file = this.files.get(this.file.value);
        const jobs = body ? countJobs(body) : 1;
        const ready = Boolean(body && body.training_file && body.model);

        text(this.count, jobs > 1 ? `Start ${format.plural(jobs, 'job')}` : 'Start the job');
        this.submit.disabled = !ready;
        if (body)
            this.snippets.show({ ...body, training_file: body.training_file || 'FILE',
                model: body.model || 'MODEL' });
        if (!ready) {
            this.estimate.clear(!this.file.value ? 'Choose a file first.' :
                !this.model.value ? 'There is no base model.' : 'A setting needs another value.');
            return;
        }
        const reading = JSON.stringify([file.id, this.reading()]);
        if (reading !== this.read) {
            this.read = reading;
            this.example.show(file.id, this.reading(), file.line_count || 1);
            this.reported = this.report.show(file.id, this.reading());
        }
        const report = await this.reported;
        if (mine === this.turn)
            this.askIf(body, jobs, report);
    }

    /* What would be refused is not asked about: the report says why. */
    askIf(body, jobs, report) {
        const refused = Boolean(report && !report.accepted);
        this.submit.disabled = refused;
        if (refused)
            this.estimate.clear('A job would refuse this file: see what is in it.');
        else
            this.ask(firstJob(body), jobs);
    }

    async ask(body, jobs) {
        const answer = await this.estimate.ask(body, jobs, (error) => this.refuseAs(error));
        if (answer)
            this.hyper.showDefaults({ ...answer.hyperparameters, seed: 0 });
    }

    async create() {
        const body = this.body();
        if (!body)
            return;
        let made;
        try {
            made = await api.post(jobCall(body), body,
                { headers: { 'Idempotency-Key': this.key(body) } });
        } catch (error) {
            if (this.refuseAs(error))
                return;
            throw error;
        }
        this.forget();
        if (made.object === 'fine_tuning.job') {
            announce('The job was made');
            location.hash = `#/jobs/${made.id}`;
        } else {
            announce('The jobs were made');
            location.hash = '#/';
        }
    }

    /* Two clicks are one job; another body is another one. */
    key(body) {
        const now = JSON.stringify(body);
        if (now !== this.lastBody) {
            this.lastBody = now;
            this.lastKey = [...crypto.getRandomValues(new Uint8Array(16))].map((x) =>
                x.toString(16).padStart(2, '0')).join('');
        }
        return this.lastKey;
    }

    /* ---- what was typed -------------------------------------------------------------------- */

    keep() {
        if (!this.hasBegun)
            return;
        const { controls, hyper } = this;
        draft.write(this.name, { hyper: hyper.typed(), ...Object.fromEntries(
            Object.entries(controls).map(([name, { value }]) => [name, value])) });
    }

    forget() {
        this.hasBegun = false;
        draft.drop(this.name);
    }

    /* What was typed here before and not sent. */
    type(values) {
        for (const [name, control] of Object.entries(this.controls)) {
            if (control === this.suffix || control === this.priority)
                control.value = values[name] || '';
            else
                choose(control, values[name]);
        }
        this.hyper.type(values.hyper || {});
        this.where.open = ['validation_file', 'device', 'priority'].some((name) => values[name]);
        const anew = el('button', { class: 'button button-small', type: 'button', onclick: () => {
            this.forget();
            window.dispatchEvent(new HashChangeEvent('hashchange'));
        } }, 'Begin anew');
        this.kept.replaceChildren(el('p', { class: 'row small muted' },
            'This is what you entered before.', anew));
    }

    async begin(query) {
        const from = query.get('from');
        this.name = `new?${query}`;
        const typed = draft.read(this.name);
        if (typed) {
            this.type(typed);
            this.hasBegun = true;
            this.changed(true);
            return;
        }
        const job = from ? await api.get(api.jobPath(from)).catch(() => null) : null;
        if (from && !job)
            this.place.replaceChildren(notice('warn',
                el('p', {}, 'The job to begin with is not there any more.')));
        if (job) {
            choose(this.model, job.parent_model || job.model);
            choose(this.file, job.training_file || job.training_files[0]);
            choose(this.validation, job.validation_file || '');
            choose(this.device, job.device);
            this.suffix.value = job.user_provided_suffix || '';
            this.priority.value = job.priority || '';
            this.hyper.fill(job);
        }
        else
            choose(this.model, largest(this.models));
        choose(this.model, query.get('model'));
        choose(this.file, query.get('file'));
        this.changed(true);
        this.hasBegun = true;
    }
}

export async function show(main, params) {
    setTitle('New job');
    const who = await session.known();
    main.append(el('h1', {}, 'New job'));
    if (!session.maySubmit(who)) {
        main.append(notice('warn',
            el('p', {},
                `The key you signed in with has the scope ${who.scope}: it looks at ` +
                'everything and makes no jobs.')));
        return null;
    }
    const [models, devices, files] = await Promise.all([api.get('/v1/models'),
        api.get('/v1/devices'),
        api.get(`/v1/files?purpose=fine-tune&limit=${FILES}`)]);
    const job = new NewJob(who, models.data, devices.data, files.data);
    if (!models.data.length)
        main.append(errorNotice(new api.ApiError(0,
            { message: 'There is no base model: put base.safetensors and tokenizer.model into a ' +
                'folder of models/ in the state folder.' })));
    main.append(job.kept);
    job.showIn(main);
    await job.begin(params.query);
    const detach = job.upload.attach();
    return () => {
        detach();
        clearTimeout(job.timer);
        job.estimate.clear();
        job.report.clear();
    };
}
