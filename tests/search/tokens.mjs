// Counts the tokens (o200k_base) of the text on stdin. `setup.sh` puts the tokeniser into the folder of the first argument.
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const { encode } = createRequire(`${process.argv[2]}/`)('gpt-tokenizer/encoding/o200k_base')
console.log(encode(readFileSync(0, 'utf8')).length)
