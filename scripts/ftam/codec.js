// Decodes FPDUs, one per line in hex, with an independent codec, and prints each one re-encoded, or "refused: reason".
// A line may begin with the name of an ASN.1 type: "F-CHECK-request 300680...". The default is the type PDU.
"use strict";
const fs = require("fs");
const modules = "@wildboar/ftam/src/lib/modules/ISO8571-FTAM/";
const { BERElement } = require("asn1-ts");
const { BER } = require("asn1-ts/dist/node/functional");

// Recomputes the outermost length. asn1-ts 8.0.5 encodes it one byte too short around an element whose tag number is above 30
// (the request type, APPLICATION 31, which occurs only at the top of an FPDU). The contents are correct.
function withLengthCounted(bytes) {
    let at = 1;
    if ((bytes[0] & 0x1f) === 0x1f) {
        while (bytes[at++] & 0x80);
    }
    const tag = bytes.subarray(0, at);
    const contents = bytes.subarray(at + (bytes[at] & 0x80 ? 1 + (bytes[at] & 0x7f) : 1));
    const length = [];
    for (let rest = contents.length; rest > 0; rest >>= 8) {
        length.unshift(rest & 0xff);
    }
    const header = contents.length < 0x80 ? [contents.length] : [0x80 | length.length, ...length];
    return Buffer.concat([tag, Buffer.from(header), contents]);
}

function again(line) {
    const [hex, type = "PDU"] = line.split(" ").reverse();
    const codec = require(modules + type + ".ta.js");
    const name = type.replace(/-/g, "_");
    const bytes = Buffer.from(hex, "hex");
    const element = new BERElement();
    const read = element.fromBytes(bytes);
    if (read !== bytes.length) {
        throw new Error(`${read} of ${bytes.length} bytes are one element`);
    }
    const value = codec["_decode_" + name](element);
    return withLengthCounted(Buffer.from(codec["_encode_" + name](value, BER).toBytes())).toString("hex");
}

for (const line of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    let said;
    try {
        said = again(line);
    } catch (error) {
        said = "refused: " + String(error.message || error).split("\n")[0];
    }
    console.log(said);
}
