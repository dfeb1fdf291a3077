/*
 * hyper: the form's fields for hyper-parameters, each with what it means and what is sensible.
 *
 * An empty field is the default, which its placeholder shows. Several values, separated by commas,
 * make a sweep: a job for every combination.
 */
import { el, set, text } from './dom.js';

const SEED_MAX = 2147483647;

/* name, label, meaning, and what it may be: whole numbers or others, between. */
const numbers = [
    ['n_epochs', 'Epochs', 'How often each line is seen.', { whole: true, min: 1, max: 50 }],
    ['batch_size', 'Batch size', 'Lines a step learns from together.',
        { whole: true, min: 1, max: 256 }],
    ['learning_rate', 'Learning rate', 'How far a step goes; it rises and falls over the run.',
        { above: 0, max: 1e30 }],
    ['lora_rank', 'LoRA rank', 'How much the adapter can hold.',
        { whole: true, min: 1, max: 1024 }],
];
const further = [
    ['lora_alpha', 'LoRA alpha', 'How strongly the adapter acts; twice the rank is usual.',
        { above: 0, max: 1e30 }],
    ['max_len', 'Longest line, tokens', 'Lines that are longer are refused, dropped or cut.',
        { whole: true, min: 1, max: SEED_MAX }],
    ['val_split', 'Held out', 'The share of lines that is not learned but measured; 0 is none.',
        { min: 0, below: 1 }],
    ['seed', 'Seed', 'The same seed gives the same run.', { whole: true, min: 0, max: SEED_MAX }],
];
const choices = [
    ['numerics', 'Numerics', 'w4a8 trains what the 4-bit archive will compute.',
        [['', 'w4a8'], ['float32', 'float32']]],
    ['precision', 'Precision', 'What matrix products round to, on cards that can.',
        [['', 'float32'], ['tf32', 'tf32'], ['bf16', 'bf16']]],
    ['overlong', 'Overlong lines', 'What becomes of lines past the longest.',
        [['', 'refuse'], ['drop', 'drop'], ['truncate', 'truncate']]],
    ['data_rules', 'Data rules', 'as_reference takes what the reference takes, and counts it.',
        [['', 'strict'], ['as_reference', 'as_reference']]],
];

/* As JSON writes numbers, with a dot or zeros at the ends too: not 0x10, which JavaScript would
 * take. */
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/* "1e+30" is how JavaScript writes it; the daemon's bounds are told as people type them. */
const plain = (x) => String(x).replace('e+', 'e');

/* What the daemon would say is needed, or null where the value is that. */
function fault(value, rule) {
    const number = Number(value);
    const kind = rule.whole ? 'a whole number' : 'a number';
    const bounds = [
        rule.min === undefined ? null : `from ${plain(rule.min)}`,
        rule.above === undefined ? null : `above ${plain(rule.above)}`,
        rule.max === undefined ? null :
            `${rule.min === undefined ? 'and at most' : 'to'} ${plain(rule.max)}`,
        rule.below === undefined ? null : `and below ${plain(rule.below)}`,
    ].filter(Boolean).join(' ');
    if (!NUMBER.test(value))
        return `${kind}: write it as ${rule.whole ? '16' : '0.001 or 1e-3'}; ${bounds} is needed`;
    if ((!rule.whole || Number.isInteger(number)) && !(number < rule.min) && !(number > rule.max) &&
        !(number <= rule.above) && !(number >= rule.below))
        return null;
    return `${kind} ${bounds}`;
}

class Field {
    constructor([name, label, meaning, rule], changed) {
        this.name = name;
        this.rule = rule;
        const id = `hyper-${name}`;
        this.input = Array.isArray(rule) ?
            el('select', { class: 'select', id, 'aria-describedby': `${id}-hint`,
                onchange: changed }, rule.map(([value, words]) => el('option', { value }, words))) :
            el('input', { class: 'input num', id, inputmode: 'decimal', autocomplete: 'off',
                spellcheck: 'false',
                          'aria-describedby': `${id}-hint ${id}-error`, oninput: changed });
        this.error = el('p', { class: 'field-error', id: `${id}-error` });
        this.element = el('div', { class: 'field' }, el('label', { for: id }, label), this.input,
            this.error,
            el('p', { class: 'hint', id: `${id}-hint` }, meaning));
    }

    refuse(message) {
        text(this.error, message || '');
        set(this.input, { 'aria-invalid': message ? 'true' : null });
    }

    /* undefined: the default; a list: several. Throws nothing: what is wrong is told beside it,
     * and false. */
    read() {
        if (this.input.disabled)
            return undefined;
        const words = this.input.value.trim();
        this.refuse('');
        if (Array.isArray(this.rule) || words === '')
            return words || undefined;
        /* also while a list is typed */
        const values = words.split(',').map((one) => one.trim()).filter(Boolean);
        const wrong = values.length ? values.find((value) => fault(value, this.rule)) : words;
        this.refuse(wrong === undefined ? '' : `"${wrong}" is not ${fault(wrong, this.rule)}`);
        if (wrong !== undefined)
            return false;
        return values.length === 1 ? Number(values[0]) : [...new Set(values.map(Number))];
    }
}

export class Hyper {
    constructor(changed) {
        const make = (spec) => new Field(spec, changed);
        const basic = numbers.map(make);
        const more = further.map(make);
        const chosen = choices.map(make);
        this.fields = new Map([...basic, ...more, ...chosen].map((field) => [field.name, field]));
        this.more = el('details', { class: 'more' }, el('summary', {}, 'More settings'),
            el('div', { class: 'fields' }, [...more, ...chosen].map((field) => field.element)));
        this.element = el('div', { class: 'stack' },
            el('div', { class: 'fields' }, basic.map((field) => field.element)),
            el('p', { class: 'hint' },
                'Empty is the default. Several values with commas between them, as 1e-4, 3e-4, ' +
                'make a job for every combination.'), this.more);
    }

    /* {hyperparameters, seed}, or null where something is wrong. */
    read() {
        const hyperparameters = {};
        let ok = true;
        for (const [name, field] of this.fields) {
            const value = field.read();
            if (value === false)
                ok = false;
            else if (value !== undefined)
                hyperparameters[name] = value;
        }
        const { seed, ...rest } = hyperparameters;
        return ok ? { hyperparameters: rest, seed } : null;
    }

    /* What the daemon would take where a field is empty. */
    showDefaults(values) {
        for (const [name, field] of this.fields) {
            if (field.input.value === '' && field.input.tagName === 'INPUT' &&
                values[name] !== undefined && values[name] !== null)
                field.input.placeholder = String(values[name]);
        }
    }

    /* What stands in the fields, by name, and back. */
    typed() {
        return Object.fromEntries([...this.fields].map(([name, field]) => [name,
            field.input.value]));
    }

    type(values) {
        for (const [name, field] of this.fields) {
            if (typeof values[name] === 'string')
                field.input.value = values[name];
        }
        this.more.open = this.more.open || [...further, ...choices].some(([name]) => values[name]);
    }

    fill(job) {
        for (const [name, field] of this.fields) {
            const value = name === 'seed' ? job.seed : job.hyperparameters[name];
            if (value === null || value === undefined)
                continue;
            if (field.input.tagName === 'INPUT')
                field.input.value = String(value);
            else
                field.input.value = [...field.input.options].some((option) =>
                    option.value === value) ? value : '';
        }
        this.more.open = true;
    }

    /* A model that is gone on from has its rank and alpha. */
    fix(isFixed) {
        for (const name of ['lora_rank', 'lora_alpha']) {
            const field = this.fields.get(name);
            field.input.disabled = isFixed;
            if (isFixed)
                field.input.value = '';
        }
    }

    /* An error of the daemon stands at its field; false: at none of these. */
    refuse(param, message) {
        const field = this.fields.get(String(param).split('.').pop());
        if (!field)
            return false;
        field.refuse(message);
        if (further.concat(choices).some(([name]) => name === field.name))
            this.more.open = true;
        return true;
    }
}

/* How many jobs that makes. */
export function countJobs(body) {
    return [...Object.values(body.hyperparameters || {}),
        body.seed].reduce((count, value) => count * (Array.isArray(value) ? value.length : 1), 1);
}

/* The first of each list: what an estimate is made of. */
export function firstJob(body) {
    const first = (value) => Array.isArray(value) ? value[0] : value;
    return { ...body, ...(body.seed === undefined ? {} : { seed: first(body.seed) }),
             hyperparameters: Object.fromEntries(Object.entries(body.hyperparameters ||
                 {}).map(([name, value]) => [name, first(value)])) };
}
