/*
 * page: what every page tells the shell.
 */

export function setTitle(title) {
    document.title = title ? `${title} · needled` : 'needled';
}

let clearing = null;

/* Said to who listens; politely, and again even if it is the same. */
export function announce(message) {
    const region = document.getElementById('announcements');
    clearTimeout(clearing);
    region.textContent = '';
    setTimeout(() => { region.textContent = message; }, 60);
    clearing = setTimeout(() => { region.textContent = ''; }, 8000);
}
