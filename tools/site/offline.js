// Keeps the page for use without a network. FILES and VERSION are put in front of this by tools/site.

const NAME = `stepwatch-${VERSION}`;

addEventListener("install", (event) => {
  event.waitUntil(
    caches.open(NAME).then(async (cache) => {
      await cache.addAll(FILES);
      await skipWaiting();
    }),
  );
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys().then(async (names) => {
      const old = names.filter((name) => name.startsWith("stepwatch-") && name !== NAME);
      await Promise.all(old.map((name) => caches.delete(name)));
      await clients.claim();
    }),
  );
});

// The files of the page belong together and come from the cache; everything else comes from the network if possible.
addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && new URL(request.url).origin === location.origin) event.respondWith(respond(request));
});

async function respond(request) {
  const cache = await caches.open(NAME);
  const kept = await cache.match(request, { ignoreSearch: true });
  const own = FILES.some((file) => new URL(file, location).pathname === new URL(request.url).pathname);
  if (kept && own) return kept;
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (problem) {
    if (kept) return kept;
    throw problem;
  }
}
