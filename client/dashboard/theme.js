/* Before the first paint: the theme that was chosen, else the system's. */
(function () {
    'use strict';
    let theme = null;
    try {
        theme = localStorage.getItem('needled.theme');
    } catch (e) {
        theme = null; /* storage is forbidden: the system's */
    }
    if (theme === 'light' || theme === 'dark')
        document.documentElement.dataset.theme = theme;
})();
