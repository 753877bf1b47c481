import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.stream.*;

/** Writes each key of standard input, until it is written, with a stock client that knows Redis Sentinel. */
public class Clients {
  interface Writer {
    void set(String key) throws Exception;
  }

  public static void main(String[] args) throws Exception {
    List<String> sentinels = List.of(args).subList(1, args.length);
    Writer writer = switch (args[0]) {
      case "jedis" -> jedis(sentinels);
      case "lettuce" -> lettuce(sentinels);
      case "redisson" -> redisson(sentinels);
      default -> throw new IllegalArgumentException(args[0]);
    };
    var in = new BufferedReader(new InputStreamReader(System.in));
    for (String key; (key = in.readLine()) != null; ) {
      write(writer, args[0] + ":" + key);
    }
    System.exit(0);
  }

  static void write(Writer writer, String key) throws Exception {
    long end = System.nanoTime() + Duration.ofSeconds(50).toNanos();
    for (; ; ) {
      try {
        writer.set(key);
        System.out.println("done");
        return;
      } catch (Exception e) {
        if (System.nanoTime() > end) {
          System.out.println("failed: " + e);
          return;
        }
        Thread.sleep(50);
      }
    }
  }

  static Writer jedis(List<String> sentinels) {
    var client = redis.clients.jedis.RedisSentinelClient.builder()
        .masterName("orders")
        .sentinels(sentinels.stream().map(redis.clients.jedis.HostAndPort::from).collect(Collectors.toSet()))
        .clientConfig(redis.clients.jedis.DefaultJedisClientConfig.builder().socketTimeoutMillis(1000).build())
        .build();
    return key -> client.set(key, "1");
  }

  static Writer lettuce(List<String> sentinels) {
    var uri = io.lettuce.core.RedisURI.builder().withSentinelMasterId("orders").withTimeout(Duration.ofSeconds(1));
    for (String s : sentinels) {
      int colon = s.lastIndexOf(':');
      uri.withSentinel(s.substring(0, colon), Integer.parseInt(s.substring(colon + 1)));
    }
    var client = io.lettuce.core.RedisClient.create();
    var connection = io.lettuce.core.masterreplica.MasterReplica.connect(client, io.lettuce.core.codec.StringCodec.UTF8, uri.build());
    return key -> connection.sync().set(key, "1");
  }

  static Writer redisson(List<String> sentinels) {
    var config = new org.redisson.config.Config();
    config.useSentinelServers()
        .setMasterName("orders")
        .setTimeout(1000)
        .addSentinelAddress(sentinels.stream().map(s -> "redis://" + s).toArray(String[]::new));
    var client = org.redisson.Redisson.create(config);
    return key -> client.getBucket(key, org.redisson.client.codec.StringCodec.INSTANCE).set("1");
  }
}
