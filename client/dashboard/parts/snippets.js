/*
 * snippets: the job of the form as curl, Python and needlectl would make it.
 */
import * as api from '../api.js';
import { copyButton } from './controls.js';
import { el, text } from './dom.js';

const kinds = [['curl', 'curl'], ['python', 'Python'], ['needlectl', 'needlectl']];

const quote = (value) => /^[\w@%+=:,./-]+$/.test(value) ? value :
    `'${String(value).replaceAll("'", "'\\''")}'`;

function isSweep(body) {
    return [...Object.values(body.hyperparameters || {}), body.seed].some(Array.isArray);
}

export function jobCall(body) {
    return isSweep(body) ? '/v1/fine_tuning/sweeps' : '/v1/fine_tuning/jobs';
}

function curl(body, origin, needsKey) {
    return [`curl ${origin}${jobCall(body)} \\`,
        ...(needsKey ? ['     -H "Authorization: Bearer $NEEDLED_API_KEY" \\'] : []),
            '     -H "Content-Type: application/json" \\',
                `     -d ${quote(JSON.stringify(body, null, 2))}`].join('\n');
}

/* JSON's true, false and null are no words of Python's. */
function literal(value, indent = '') {
    if (value === null || value === undefined)
        return 'None';
    if (typeof value === 'boolean')
        return value ? 'True' : 'False';
    if (Array.isArray(value))
        return `[${value.map((one) => literal(one)).join(', ')}]`;
    if (typeof value === 'object')
        return `{\n${Object.entries(value).map(([name, one]) =>
            `${indent}    ${JSON.stringify(name)}: ${literal(one, indent + '    ')},\n`)
            .join('')}${indent}}`;
    return JSON.stringify(value);
}

function python(body, origin, needsKey) {
    const { device, priority, hyperparameters, ...known } = body;
    const own = Object.fromEntries(Object.entries({ device,
        priority }).filter(([, value]) => value !== undefined));
    const head = ['import os', 'import openai', '',
        `client = openai.OpenAI(base_url=${JSON.stringify(origin + '/v1')}, ` +
            `api_key=${needsKey ? 'os.environ["NEEDLED_API_KEY"]' : '"-"'})`];
    if (!needsKey)
        head.shift();
    if (isSweep(body))
        return [...head,
            'sweep = client.post("/fine_tuning/sweeps", cast_to=object, ' +
                `body=${literal(body)})`].join('\n');
    if (Object.keys(hyperparameters || {}).length)
        known.method = { type: 'supervised', supervised: { hyperparameters } };
    if (Object.keys(own).length)
        known.extra_body = own;
    return [...head, 'job = client.fine_tuning.jobs.create(',
        ...Object.entries(known).map(([name, value]) => `    ${name}=${literal(value, '    ')},`),
            ')', 'print(job.id)'].join('\n');
}

function needlectl(body, origin, needsKey) {
    const words = ['needlectl', isSweep(body) ? 'sweep' : 'submit', body.training_file, '--model',
        body.model];
    for (const [option, value] of [['--validation', body.validation_file],
        ['--suffix', body.suffix], ['--device', body.device], ['--priority', body.priority]]) {
        if (value !== undefined && value !== null)
            words.push(option, String(value));
    }
    if (body.seed !== undefined && !Array.isArray(body.seed))
        words.push('--seed', String(body.seed));
    for (const [name, value] of Object.entries({ ...(body.hyperparameters || {}),
        ...(Array.isArray(body.seed) ? { seed: body.seed } : {}) }))
        words.push(Array.isArray(value) ? '--vary' : '--set',
            `${name}=${[].concat(value).join(',')}`);
    return `NEEDLED_URL=${origin} \\\n${needsKey ? 'NEEDLED_API_KEY=… \\\n' : ''}` +
        `${words.map(quote).join(' ').replace(/ (?=--)/g, ' \\\n    ')}`;
}

const makers = { curl, python, needlectl };

export class Snippets {
    constructor(needsKey) {
        this.needsKey = needsKey;
        this.kind = 'curl';
        this.code = el('code', {});
        this.element = el('div', { class: 'stack snippets' },
            el('fieldset', { class: 'choice' }, el('legend', { class: 'visually-hidden' },
                'The same job as'),
                kinds.map(([kind, name]) => el('label', {},
                    el('input', { type: 'radio', name: 'snippet', value: kind,
                        checked: kind === this.kind,
                    onchange: () => { this.kind = kind; this.draw(); } }), el('span', {}, name)))),
            el('div', { class: 'snippet' }, el('pre',
                { tabindex: 0, 'aria-label': 'The same job as a command' }, this.code),
                copyButton('Copy', () => this.code.textContent)));
    }

    show(body) {
        this.body = body;
        this.draw();
    }

    draw() {
        const origin = api.url('').replace(/\/$/, '');
        if (this.body)
            text(this.code, makers[this.kind](this.body, origin, this.needsKey));
    }
}
