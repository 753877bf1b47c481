import java.sql.*;

public class Primary {
    public static void main(String[] args) throws Exception {
        DriverManager.setLoginTimeout(4); // seconds
        try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            db.setNetworkTimeout(Runnable::run, 4000); // a database that has gone silent ends this program, and its supervisor starts it again
            String attempt = null, session;
            long term, sent;
            int done;
            PreparedStatement acquire = db.prepareStatement("SELECT term, state, session, wait_ms, attempt FROM understudy.acquire('report', ?, ?)");
            while (true) {
                sent = System.nanoTime();
                acquire.setString(1, args[0]);
                acquire.setString(2, attempt);
                ResultSet r = acquire.executeQuery();
                r.next();
                term = r.getLong("term");
                if (!r.wasNull()) {
                    session = r.getString("session");
                    done = r.getBytes("state") == null ? 0 : Integer.parseInt(new String(r.getBytes("state")));
                    break;
                }
                attempt = r.getString("attempt");
                Thread.sleep(r.getInt("wait_ms"));
            }

            System.out.println("primary " + term + " from " + done);
            PreparedStatement state = db.prepareStatement("SELECT understudy.state('report', ?, ?)");
            PreparedStatement renew = db.prepareStatement("SELECT understudy.renew(?)");
            while (System.nanoTime() < sent + 4_000_000_000L) {
                done++; // one piece of work
                state.setLong(1, term);
                state.setBytes(2, String.valueOf(done).getBytes());
                state.execute();
                long now = System.nanoTime();
                renew.setString(1, session);
                ResultSet r = renew.executeQuery();
                r.next();
                if (!r.getString(1).equals("ok")) break;
                sent = now;
                Thread.sleep(1000);
            }
            PreparedStatement release = db.prepareStatement("SELECT understudy.release(?)");
            release.setString(1, session);
            release.execute();
        }
    }
}
