// SPDX-License-Identifier: Apache-2.0
// Loads the official client outside of its platform, and exports the class that speaks /rpc, which it keeps to itself.
export async function resolve(specifier, context, next) {
  if (specifier === 'cloudflare:workers') return { url: new URL('./workers_stub.mjs', import.meta.url).href, shortCircuit: true };
  try {
    return await next(specifier, context);
  } catch (error) { // packages made for a bundler name files without their ending
    if (error.code === 'ERR_MODULE_NOT_FOUND' && specifier.startsWith('.')) return next(specifier + '.js', context);
    throw error;
  }
}

export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!/@cloudflare\/sandbox\/dist\/sandbox-[^/]*\.js$/.test(url)) return loaded;
  return { ...loaded, source: `${loaded.source}\nexport { ContainerControlClient, SandboxError };\n` };
}
