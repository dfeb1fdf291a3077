/* app: which page is shown. */
