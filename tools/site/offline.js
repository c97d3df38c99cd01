// Keeps the page for when there is no network. FILES and VERSION stand above, written by tools/site.

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

// What the page consists of belongs together and comes from here; everything else from the network while there is one.
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
