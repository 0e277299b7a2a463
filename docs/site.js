// A browser lets no page that was opened from a folder fetch the index, so searching would find nothing there.
if (location.protocol === "file:") document.documentElement.classList.add("from-folder");
