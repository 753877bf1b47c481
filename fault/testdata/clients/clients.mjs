// Writes each key of standard input, until it is written, with a stock client that knows Redis Sentinel.
import {createInterface} from 'node:readline'

const [client, ...addresses] = process.argv.slice(2)
const sentinels = addresses.map(a => ({host: a.slice(0, a.lastIndexOf(':')), port: Number(a.slice(a.lastIndexOf(':') + 1))}))
const writers = {
  ioredis: () => ioredis('ioredis'),
  ioredis5: () => ioredis('ioredis5'),
  redis: async () => {
    const {createSentinel} = await import('redis')
    const c = createSentinel({
      name: 'orders', sentinelRootNodes: sentinels, scanInterval: 3000,
      nodeClientOptions: {pingInterval: 300, socket: {socketTimeout: 1000}},
      sentinelClientOptions: {pingInterval: 300, socket: {socketTimeout: 1000}},
    })
    c.on('error', () => {})
    await c.connect()
    return key => c.set(key, '1')
  },
}

async function ioredis(module) {
  const {Redis} = await import(module)
  const c = new Redis({name: 'orders', sentinels, socketTimeout: 2000, sentinelCommandTimeout: 1000})
  c.on('error', () => {})
  return key => c.set(key, '1')
}

const write = await writers[client]()
for await (const key of createInterface({input: process.stdin})) {
  const end = Date.now() + 50_000
  for (;;) {
    try {
      await write(`${client}:${key}`)
      console.log('done')
      break
    } catch (e) {
      if (Date.now() > end) {
        console.log(`failed: ${e}`)
        break
      }
      await new Promise(r => setTimeout(r, 50))
    }
  }
}
process.exit(0)
