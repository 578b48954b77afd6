// SPDX-License-Identifier: Apache-2.0
// What the official client imports from its platform and does not use outside of it.
export class RpcTarget {}
export class DurableObject {}
export class WorkerEntrypoint {}
export const env = {};
export const tracing = undefined;
