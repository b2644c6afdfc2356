import { isObject } from "./wire";

/** Query parameters that the server adds to the links of a message, for the site's own statistics. */
export interface LinkTags {
  /** Host names. `*.shop.example` stands for all subdomains of `shop.example`. */
  hosts: string[];
  parameters: Record<string, string>;
}

const HOSTS_MAX = 100;
const PARAMETERS_MAX = 40;
const LENGTH_MAX = 200;

/**
 * Finds a signature in parameters, one per line. An added parameter would make the URL invalid:
 *
 *   X-…-Signature, q-signature  AWS, Google, Alibaba; Tencent
 *   Signature                   CloudFront, Laravel, Shopify's app proxy, earlier versions of AWS and Google
 *   sig, hmac, _hash            Azure, Shopify, Symfony
 *   s, if it is an MD5          imgix. On many other sites, `s` is a search.
 *   token and expires           Bunny. Alone, `token` is often a login that signs nothing.
 */
const SIGNED = /^((x-\w+-|q-)?signature|sig|hmac|_hash)=|^s=[\da-f]{32}$|^token=[^]*^expires=|^expires=[^]*^token=/im;

const areTexts = (list: unknown, max: number) =>
  Array.isArray(list) &&
  list.length <= max &&
  list.every((text) => typeof text === "string" && text.length <= LENGTH_MAX);

/** Returns the link tags of a response. Undefined if it has none, or if they are malformed. */
export function readTags(value: unknown): LinkTags | undefined {
  if (!isObject(value)) return;
  const { hosts, parameters } = value;
  if (!areTexts(hosts, HOSTS_MAX) || !isObject(parameters) || "" in parameters) return;
  if (areTexts(Object.entries(parameters).flat(), PARAMETERS_MAX * 2)) return { hosts, parameters } as LinkTags;
}

/**
 * Adds the parameters that an absolute URL lacks, before its fragment. All other characters stay as they are. A URL of another
 * host, or one with a signature, is returned unchanged.
 */
export function addTags(url: string, { hosts, parameters }: LinkTags): string {
  try {
    const { protocol, hostname, searchParams } = new URL(url);
    const isListed = hosts.some((listed) => isHost(hostname, listed.toLowerCase()));
    const lines = [...searchParams].map((parameter) => parameter.join("=")).join("\n");
    if (!isListed || !/^https?:/.test(protocol) || SIGNED.test(lines)) return url;
    const [address] = url.split("#") as [string];
    let tagged = address;
    for (const [name, value] of Object.entries(parameters)) {
      if (searchParams.has(name)) continue;
      tagged += tagged.includes("?") ? (/[?&]$/.test(tagged) ? "" : "&") : "?";
      tagged += `${encodeURIComponent(name)}=${encodeURIComponent(value)}`;
    }
    return tagged + url.slice(address.length);
  } catch {
    return url; // half of a surrogate pair, which cannot be encoded
  }
}

const isHost = (name: string, listed: string) =>
  name === listed || (/^\*\.[^.]/.test(listed) && name.endsWith(listed.slice(1)));
