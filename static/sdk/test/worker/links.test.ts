import { describe, expect, it } from "vitest";
import { addTags, readTags } from "../../src/worker/links";

const HOSTS = ["shop.example", "*.shop.example"];
const PARAMETERS = { utm_source: "push", utm_campaign: "spring-sale" };
const ADDED = "utm_source=push&utm_campaign=spring-sale";
const tagged = (url: string, parameters: Record<string, string> = PARAMETERS, hosts = HOSTS) =>
  addTags(url, { hosts, parameters });

describe("addTags", () => {
  it.each([
    ["https://shop.example", "?"],
    ["https://shop.example/", "?"],
    ["https://shop.example/a/b.html", "?"],
    ["https://shop.example/?", ""],
    ["https://shop.example/?x", "&"],
    ["https://shop.example/?x=1&", ""],
    ["https://shop.example/?a=b%20c&x", "&"],
    ["https://shop.example/?a=b+c&a=%7e&&=&ä='\"<>", "&"],
    ["https://shop.example/?to=https://other.example/?a", "&"],
    ["https://shop.example/%7Euser/./x", "?"],
    ["http://user:pass@shop.example:8080/", "?"],
  ])("appends to %s", (url, joint) => {
    expect(tagged(url)).toBe(url + joint + ADDED);
  });

  it.each([
    ["https://shop.example/a", "?", "#top"],
    ["https://shop.example/a?x=1", "&", "#"],
    ["https://shop.example/", "?", "#/x?y"],
    ["https://shop.example/", "?", "#/x?y#z"],
    ["https://shop.example/?x", "&", "#/x?utm_source=route&sig=1"],
  ])("inserts before the fragment of %s", (before, joint, fragment) => {
    expect(tagged(before + fragment)).toBe(before + joint + ADDED + fragment);
  });

  it.each([
    ["?utm_source=mail", "&utm_campaign=spring-sale"],
    ["?utm_source=", "&utm_campaign=spring-sale"],
    ["?utm_source", "&utm_campaign=spring-sale"],
    ["?utm%5Fsource=mail", "&utm_campaign=spring-sale"],
    ["?%75tm_source=mail#f", "&utm_campaign=spring-sale"],
    ["?x&utm_campaign=a&utm_source=b", ""],
    ["?UTM_SOURCE=mail", `&${ADDED}`],
    ["?my_utm_source=mail", `&${ADDED}`],
  ])("leaves the parameters of %s", (query, added) => {
    const [before, ...fragment] = query.split(/(?=#)/);
    expect(tagged(`https://shop.example/${query}`)).toBe(`https://shop.example/${before}${added}${fragment.join("")}`);
  });

  it("recognises a name with a space", () => {
    const parameters = { "a b": "1" };
    expect(tagged("https://shop.example/", parameters)).toBe("https://shop.example/?a%20b=1");
    for (const query of ["?a+b=2", "?a%20b=2"])
      expect(tagged(`https://shop.example/${query}`, parameters)).toBe(`https://shop.example/${query}`);
  });

  it("encodes names and values", () => {
    const parameters = { "utm&x=#": "50% & more?", utm_term: "Schuhe für Ä/+", utm_id: "" };
    const query = "utm%26x%3D%23=50%25%20%26%20more%3F&utm_term=Schuhe%20f%C3%BCr%20%C3%84%2F%2B&utm_id=";
    expect(tagged("https://shop.example/", parameters)).toBe(`https://shop.example/?${query}`);
    expect(tagged("https://shop.example/", { utm_source: "\ud800" })).toBe("https://shop.example/");
  });

  it.each([
    ["https://SHOP.Example/", HOSTS],
    ["https://shop.example:8443/", HOSTS],
    ["https://www.shop.example/", HOSTS],
    ["https://a.b.Shop.example/", HOSTS],
    ["https://shop.example/", ["other.example", "Shop.EXAMPLE"]],
    ["https://www.shop.example/", ["*.SHOP.example"]],
    ["http://localhost:3000/", ["localhost"]],
  ])("tags the listed host of %s", (url, hosts) => {
    expect(tagged(url, PARAMETERS, hosts)).toBe(`${url}?${ADDED}`);
  });

  it.each([
    ["https://other.example/", HOSTS],
    ["https://myshop.example/", HOSTS],
    ["https://shop.example.evil.example/", HOSTS],
    ["https://shop.example@evil.example/", HOSTS],
    ["https://evil.example/?https://shop.example/", HOSTS],
    ["https://shop.example/", ["*.shop.example"]],
    ["https://www.shop.example/", ["shop.example"]],
    ["https://shop.example/", []],
    ["https://shop.example/", ["*", "*.", "", "shop.*", "*shop.example", "https://shop.example", "shop.example:443"]],
    ["https://a.b.shop.example/", ["*.*.shop.example", "a.*.shop.example"]],
    ["https://shop.example./", ["*.", "*.."]],
    ["ftp://shop.example/", HOSTS],
    ["javascript://shop.example/%0aalert(1)", HOSTS],
    ["/relative", HOSTS],
    ["", HOSTS],
  ])("leaves %j with hosts %j", (url, hosts) => {
    expect(tagged(url, PARAMETERS, hosts)).toBe(url);
  });

  it.each([
    ["AWS version 4", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Signature=0f"],
    ["AWS version 2", "AWSAccessKeyId=A&Expires=1&Signature=a%2Bb%3D"],
    ["CloudFront", "Policy=e&Signature=a&Key-Pair-Id=K"],
    ["Google", "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Signature=0f"],
    ["Google, earlier", "GoogleAccessId=a&Expires=1&Signature=a"],
    ["Alibaba", "x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-signature=0f"],
    ["Tencent", "q-sign-algorithm=sha1&q-signature=0f"],
    ["Azure", "sv=2024-11-04&sp=r&sig=a%3D"],
    ["Shopify", "shop=a.myshopify.com&timestamp=1&hmac=0f"],
    ["Shopify's app proxy or Laravel", "expires=1&signature=0f"],
    ["Symfony", "_expiration=1&_hash=a"],
    ["imgix", "w=400&s=0123456789abcdef0123456789ABCDEF"],
    ["imgix with more", "s=0123456789abcdef0123456789abcdef&w=400"],
    ["Bunny", "token=a-b&token_path=/&expires=1"],
    ["Bunny, reordered", "expires=1&x&token=a-b"],
    ["another case", "x-AMZ-signature=0f"],
    ["another case of sig", "SIG=0f"],
    ["an encoded name", "%73ig=0f"],
    ["an empty signature", "x=1&signature"],
  ])("leaves a URL signed by %s", (_, query) => {
    for (const url of [`https://shop.example/f?${query}`, `https://shop.example/f?${query}#x`])
      expect(tagged(url)).toBe(url);
  });

  it.each([
    "s=red+shoes",
    "s=0123456789abcdef0123456789abcdef0",
    "ss=0123456789abcdef0123456789abcdef",
    "token=login",
    "expires=1",
    "my_token=1&expires=1",
    "design=1&sigma=2",
    "q=sig%3D1",
    "mysig=1&signature_of=2",
    "hash=1",
  ])("tags the unsigned query %s", (query) => {
    expect(tagged(`https://shop.example/?${query}`)).toBe(`https://shop.example/?${query}&${ADDED}`);
  });

  it("changes nothing without parameters", () => {
    expect(tagged("https://shop.example/?#x", {})).toBe("https://shop.example/?#x");
  });

  it("adds nothing twice", () => {
    const once = tagged("https://shop.example/?a=b%20c#/x?y", { utm_source: "web push", "ü&": "1" });
    expect(tagged(once, { utm_source: "web push", "ü&": "1" })).toBe(once);
  });
});

describe("readTags", () => {
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`p${n}`, "v"]));

  it.each([
    ["hosts and parameters", { hosts: HOSTS, parameters: PARAMETERS }],
    ["empty values", { hosts: HOSTS, parameters: { utm_content: "" } }],
    ["40 parameters", { hosts: HOSTS, parameters: many(40) }],
    ["200 characters", { hosts: HOSTS, parameters: { ["n".repeat(200)]: "v".repeat(200) } }],
    ["100 hosts", { hosts: Array(100).fill("shop.example"), parameters: PARAMETERS }],
  ])("reads %s", (_, tags) => {
    expect(readTags(JSON.parse(JSON.stringify(tags)))).toEqual(tags);
  });

  it("leaves out other members", () => {
    expect(readTags({ hosts: HOSTS, parameters: PARAMETERS, more: [1] })).toEqual({
      hosts: HOSTS,
      parameters: PARAMETERS,
    });
  });

  it.each([
    ["nothing", undefined],
    ["null", null],
    ["text", "utm_source=push"],
    ["a list", [HOSTS, PARAMETERS]],
    ["no hosts", { parameters: PARAMETERS }],
    ["one host", { hosts: "shop.example", parameters: PARAMETERS }],
    ["hosts that are no text", { hosts: [1], parameters: PARAMETERS }],
    ["hosts that are null", { hosts: ["shop.example", null], parameters: PARAMETERS }],
    ["101 hosts", { hosts: Array(101).fill("shop.example"), parameters: PARAMETERS }],
    ["a long host", { hosts: ["h".repeat(201)], parameters: PARAMETERS }],
    ["no parameters", { hosts: HOSTS }],
    ["parameters that are null", { hosts: HOSTS, parameters: null }],
    ["parameters in a list", { hosts: HOSTS, parameters: ["utm_source"] }],
    ["parameters as text", { hosts: HOSTS, parameters: "utm_source" }],
    ["a number as value", { hosts: HOSTS, parameters: { utm_source: 1 } }],
    ["an object as value", { hosts: HOSTS, parameters: { utm_source: "push", utm_term: {} } }],
    ["a list as value", { hosts: HOSTS, parameters: { utm_source: ["push"] } }],
    ["a nested list as value", { hosts: HOSTS, parameters: { utm_source: [["push"]] } }],
    ["an empty name", { hosts: HOSTS, parameters: { "": "push" } }],
    ["41 parameters", { hosts: HOSTS, parameters: many(41) }],
    ["a long name", { hosts: HOSTS, parameters: { ["n".repeat(201)]: "v" } }],
    ["a long value", { hosts: HOSTS, parameters: { n: "v".repeat(201) } }],
  ])("ignores %s", (_, tags) => {
    expect(readTags(tags)).toBeUndefined();
  });
});
