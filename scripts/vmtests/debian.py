# SPDX-License-Identifier: GPL-2.0
"""Servers and clients as Debian packages them, over SDP (scripts/programs): what Documentation/programs.rst tells.

Each prints what the programs say as comments of TAP.
"""

import contextlib
import functools
import re
import shlex
from collections.abc import Callable

from vmlib import debian
from vmlib.bench import Bench, expect, wait_for
from vmlib.bench import test as any_test
from vmlib.debian import LISTENERS_OF_TCP, LONG, RUN, VSFTPD, run, serving, shell, spawn, write
from vmlib.machine import Job, Vm
from vmtests.programs import counted
from vmtests.steer import steering

# The debug kernel has no file system for the disk, and what the programs do reaches the module by the same calls.
test = functools.partial(any_test, kinds=("stock",), core=())


def tell(output: str, lines: int = 12) -> None:
    """The last lines of what a program has said, for who reads the results."""
    for line in output.strip().splitlines()[-lines:]:
        print(f"# | {line.rstrip()}", flush=True)


@test()
def redis(bench: Bench) -> None:
    """redis-benchmark; a value of 300 kB; a subscriber; a replica, whose server connects."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    options = "--protected-mode no --save '' --appendonly no --dir /tmp --repl-diskless-sync-delay 0 --io-threads 2"
    before = bench.stats(a)
    with serving(bench, b, f"redis-server --port 6379 {options}", 6379):
        output = run(bench, a, f"redis-benchmark -h {there} -q -n 2000 -c 20 -d 1000 -P 4 "
                     "-t ping,set,get,lpush,lrange_100")
        figures = re.findall(r"^.*requests per second.*", output.replace("\r", "\n"), re.MULTILINE)
        tell("\n".join(figures))
        expect(len(figures) >= 6, output)
        shell(bench, a, "head -c 300000 /dev/urandom >/tmp/value; "
              f"{RUN} redis-cli -h {there} -x set key </tmp/value; "
              f"{RUN} redis-cli -h {there} --raw get key | head -c 300000 | cmp - /tmp/value")
        listener = spawn(a, f"timeout 60 redis-cli -h {there} subscribe news")
        wait_for(lambda: listener.says("subscribe"), bench.limit(LONG), "no subscription")
        wait_for(lambda: run(bench, a, f"redis-cli -h {there} publish news hello").strip() == "1", bench.limit(LONG),
                 "nobody has subscribed")
        wait_for(lambda: listener.says("hello"), bench.limit(LONG), listener)
        listener.kill()
        here = bench.address(a)
        with serving(bench, a, f"redis-server --port 6380 {options} --replicaof {there} 6379", 6380) as replica:
            wait_for(lambda: "master_link_status:up" in run(bench, a, f"redis-cli -h {here} -p 6380 info replication"),
                     bench.limit(LONG), replica)
            shell(bench, a, f"{RUN} redis-cli -h {here} -p 6380 --raw get key | head -c 300000 | cmp - /tmp/value")
            tell(replica.output, 6)
    counted(bench, before, 2_000_000)


NGINX = """daemon off;
user root;
worker_processes 2;
error_log stderr notice;
pid /tmp/nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path /tmp/nginx-body;
    proxy_temp_path /tmp/nginx-proxy;
    fastcgi_temp_path /tmp/nginx-fastcgi;
    uwsgi_temp_path /tmp/nginx-uwsgi;
    scgi_temp_path /tmp/nginx-scgi;
    ssl_certificate /tmp/certificate.pem;
    ssl_certificate_key /tmp/key.pem;
    upstream self {{ server {address}:8080; keepalive 4; }}
    server {{
        listen {address}:8080 deferred so_keepalive=on backlog=64 rcvbuf=256k sndbuf=256k;
        http2 on;
        root /tmp/www;
        location /copied/ {{ alias /tmp/www/; sendfile off; }}
        location /uploads/ {{ alias /tmp/uploads/; dav_methods PUT; client_max_body_size 10m; }}
    }}
    # A listener of each worker; one of IPv6 beside one of IPv4.
    server {{ listen {address}:8081 reuseport fastopen=16; root /tmp/www; }}
    server {{ listen {address}:8443 ssl; root /tmp/www; ssl_conf_command Options KTLS; }}
    server {{
        listen *:8083;
        listen [::]:8083 ipv6only=on;
        location / {{
            proxy_pass http://self;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_socket_keepalive on;
        }}
    }}
}}"""
SIZES = (1 << 10, 1 << 14, 100_001, 1 << 20)


@test()
def nginx(bench: Bench) -> None:
    """Files by sendfile() and by write(), by HTTP/2 and TLS, through a proxy that connects, to curl and wget; uploads;
    many connections; a new configuration."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    write(b, "/tmp/nginx.conf", NGINX.format(address=there))
    shell(bench, b, "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /tmp/key.pem "
          "-out /tmp/certificate.pem -subj /CN=test -days 9")
    sums = shell(bench, b, "mkdir -p /tmp/www /tmp/uploads /var/log/nginx /var/lib/nginx; cd /tmp/www; "
                 f"for n in {' '.join(map(str, SIZES))}; do head -c $n /dev/urandom >$n; done; sha256sum *")
    want = sorted(re.findall(r"[0-9a-f]{64}", sums))
    before = bench.stats(a)
    with serving(bench, b, "nginx -c /tmp/nginx.conf", 8080) as server:
        for place in (f"http://{there}:8080/", f"http://{there}:8080/copied/", f"http://{there}:8081/",
                      f"http://{there}:8083/", f"http://[{b.address6}]:8083/", f"-k https://{there}:8443/",
                      f"--http2-prior-knowledge http://{there}:8080/"):
            # One connection for all.
            options, _, url = place.rpartition(" ")
            files = " ".join(f"-o /tmp/{n} {url}{n}" for n in SIZES)
            form = ("HTTP/%{http_version} %{http_code}, %{size_download} bytes, %{num_connects} new connections, from "
                    "%{remote_ip}:%{remote_port}\\n")
            output = run(bench, a, f"curl -sS {options} -w '{form}' {files}")
            tell(output)
            expect(re.findall(r"(\d+) new", output) == ["1", "0", "0", "0"], output)
            got = shell(bench, a, f"cd /tmp; sha256sum {' '.join(map(str, SIZES))}")
            expect(sorted(re.findall(r"[0-9a-f]{64}", got)) == want, f"{place}: {got}\n{sums}")
        run(bench, a, "curl -sSf --parallel --parallel-immediate --parallel-max 60 -o /dev/null "
            f"http://{there}:8081/16384?[1-60]")
        upload = shell(bench, a, f"head -c 2000000 /dev/urandom >/tmp/upload; {RUN} curl -sSf -T /tmp/upload "
                       f"http://{there}:8080/uploads/; sha256sum </tmp/upload")
        expect(upload == shell(bench, b, "sha256sum </tmp/uploads/upload"), "another upload has come")
        output = run(bench, a, f"wget -nv -P /tmp/wget {' '.join(f'http://{there}:8080/{n}' for n in SIZES)}")
        tell(output)
        got = shell(bench, a, "cd /tmp/wget; sha256sum *")
        expect(sorted(re.findall(r"[0-9a-f]{64}", got)) == want, f"wget: {got}\n{sums}")
        # A new configuration while it serves: new workers have the same listener.
        shell(bench, b, "kill -HUP $(cat /tmp/nginx.pid)")
        wait_for(lambda: server.says("exited with code 0"), bench.limit(LONG), server)
        output = run(bench, a, f"curl -sS -I http://{there}:8080/1024")
        tell(output, 9)
        expect("200 OK" in output, output)
    counted(bench, before, 8 * sum(SIZES))


def listens_again(server: Job, count: int) -> bool:
    """Whether iperf3 has said so many times that it listens."""
    return server.output.count("Server listening") >= count


@test()
def iperf3(bench: Bench) -> None:
    """To the server and back, several streams, both ways at a time, and by sendfile()."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    with serving(bench, b, "iperf3 -s --forceflush", 5201) as server:
        for count, options in enumerate(("", "-R", "-P 3", "--bidir", "-Z", "-l 1M -w 512K"), 1):
            # Until it has counted what the former client did, it sends others away.
            wait_for(functools.partial(listens_again, server, count), bench.limit(20), server)
            before = bench.stats(a)
            output = run(bench, a, f"iperf3 -c {there} -t 2 {options}")
            print(f"# iperf3 {options}", flush=True)
            tell(output, 8 if options == "--bidir" else 4)
            sent = re.findall(r"([\d.]+) ([KMG])bits/sec.*(?:sender|receiver)", output)
            expect(len(sent) >= 2 and all(float(rate) > 0 for rate, _ in sent), output)
            counted(bench, before, 1 << 16)


@test()
def memcached(bench: Bench) -> None:
    """Its tests of conformance, in text and binary; loads; a file there and back."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    before = bench.stats(a)
    with serving(bench, b, f"memcached -u root -l {there} -t 2", 11211):
        output = run(bench, a, f"memccapable -h {there} -p 11211")
        tell(output, 5)
        expect("All tests passed" in output, output)
        for load in ("set", "get"):
            output = run(bench, a, f"memcslap --servers={there} --test={load} --concurrency=4 --execute-number=200 "
                         "--initial-load=200")
            tell(output, 6)
        shell(bench, a, f"head -c 200000 /dev/urandom >/tmp/file; {RUN} memccp --servers={there} /tmp/file; "
              f"{RUN} memccat --servers={there} --file=/tmp/back file; head -c 200000 /tmp/back | cmp - /tmp/file")
    counted(bench, before, 400_000)


POSTGRES = "setpriv --reuid postgres --regid postgres --clear-groups --"
POSTGRES_BIN = "/usr/lib/postgresql/17/bin"


def postgresql_standby(bench: Bench, client: str, ask: Callable[[str], str]) -> None:
    """A backup by two connections; a server of it, which connects and follows."""
    a, here = bench.a, bench.address(bench.a)
    shell(bench, a, "mkdir -p /tmp/standby /run/postgresql; chown postgres /tmp/standby; chmod 700 /tmp/standby; "
          "chmod 777 /run/postgresql")
    output = run(bench, a, f"{POSTGRES} {POSTGRES_BIN}/pg_basebackup {client} -D /tmp/standby -R -X stream -c fast -v",
                 seconds=300)
    tell(output, 3)
    expect("base backup completed" in output, output)
    with serving(bench, a, f"{POSTGRES} {POSTGRES_BIN}/postgres -D /tmp/standby -c listen_addresses={here}",
                 5432) as standby:
        try:
            ask("create table later (i int); insert into later select generate_series(1, 1000)")
            count = "psql -h {} -U postgres -XAtc 'select pg_is_in_recovery(), count(*) from later' postgres"
            wait_for(lambda: "t|1000" in bench.a.run(debian.inside(f"{RUN} {count.format(here)} 2>&1")).output,
                     bench.limit(LONG), standby)
            said = ask("select client_addr, state from pg_stat_replication")
            tell(f"pg_stat_replication: {said}")
            expect(said == f"{here}|streaming", said)
        finally:
            shell(bench, a, f"{POSTGRES} {POSTGRES_BIN}/pg_ctl -D /tmp/standby -m fast stop >/dev/null", 60)


@test()
def postgresql(bench: Bench) -> None:
    """initdb and pgbench, whose sums must be equal; a large COPY; cancelled queries; a client that dies; a standby."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    shell(bench, b, "mkdir -p /tmp/pg /run/postgresql; chown postgres /tmp/pg; chmod 777 /run/postgresql; "
          f"{POSTGRES} {POSTGRES_BIN}/initdb -D /tmp/pg -A trust -N --no-instructions --locale C; "
          "echo host all,replication all 10.27.0.0/16 trust >>/tmp/pg/pg_hba.conf", 400)
    client = f"-h {there} -U postgres"
    before = bench.stats(a)
    with serving(bench, b, f"{POSTGRES} {POSTGRES_BIN}/postgres -D /tmp/pg -c listen_addresses={there} -c fsync=off",
                 5432) as server:
        try:
            run(bench, a, f"{POSTGRES_BIN}/pgbench {client} -i -q -s 1 postgres", seconds=300)
            output = run(bench, a, f"{POSTGRES_BIN}/pgbench {client} -n -c 4 -t 25 postgres", seconds=300)
            tell(output, 9)
            expect("100/100" in output, output)

            def ask(query: str) -> str:
                return run(bench, a, f'psql {client} -XAtc "{query}" postgres').strip()
            sums = ask("select (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from "
                       "pgbench_tellers), (select count(*) from pgbench_history)")
            expect(sums == "t|100", sums)
            said = ask("select client_addr, state from pg_stat_activity where pid = pg_backend_pid()")
            tell(f"psql: {said}")
            expect(said == f"{bench.address(a)}|active", said)
            psql = f"{RUN} psql {client} -XAtq postgres"
            shell(bench, a, f"{psql} -c 'select i, md5(i::text) from generate_series(1, 30000) i' >/tmp/rows; "
                  f"""{psql} -c 'create table r (i int, m text)' -c "copy r from stdin delimiter '|'" </tmp/rows""")
            expect(ask("select count(*), bool_and(m = md5(i::text)) from r") == "30000|t", "the rows differ")
            said = shell(bench, a, f"{psql} -c 'set statement_timeout = 500' -c 'select pg_sleep(600)' 2>&1 || true")
            expect("canceling statement due to statement timeout" in said, said)
            # The signal has psql open a second connection, which asks for the end of the query.
            said = shell(bench, a, f"timeout -s INT {bench.limit(5):.0f} {psql} -c 'select pg_sleep(600)' 2>&1 || true")
            expect("canceling statement due to user request" in said, said)
            # The server of a client that is gone stops when it is told to look.
            gone = spawn(a, f"psql {client} -Xc 'set client_connection_check_interval = 500' -c 'select pg_sleep(600)' "
                         "postgres")
            sleeping = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'"
            wait_for(lambda: ask(sleeping) == "1", bench.limit(LONG), gone)
            gone.kill()
            wait_for(lambda: ask(sleeping) == "0", bench.limit(LONG), "the query goes on without its client")
            postgresql_standby(bench, client, ask)
        finally:
            # Its processes have groups of their own.
            shell(bench, b, f"{POSTGRES} {POSTGRES_BIN}/pg_ctl -D /tmp/pg -m fast stop >/dev/null", 60)
        expect("database system is shut down" in server.output, server.output)
    counted(bench, before, 10_000_000)


@test()
def vsftpd(bench: Bench) -> None:
    """Its folders, files there and back: connections of the client's (EPSV, PASV) and of the server's (EPRT)."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    write(b, "/tmp/vsftpd.conf", VSFTPD.format(port=21))
    shell(bench, b, "mkdir -p /tmp/ftp/in /tmp/empty; chown ftp /tmp/ftp/in; chmod 755 /tmp/empty; "
          "head -c 1000003 /dev/urandom >/tmp/ftp/file")
    before = bench.stats(a)
    with serving(bench, b, "vsftpd /tmp/vsftpd.conf", 21):
        for way in ("--ftp-pasv", "--disable-epsv", f"--ftp-port {bench.address(a)}"):
            output = run(bench, a, f"curl -sSv {way} -o /tmp/file ftp://{there}/file")
            tell("\n".join(line for line in output.splitlines() if re.match(r"[<>] ", line)), 9)
            shell(bench, a, f"{RUN} curl -sS {way} -T /tmp/file ftp://{there}/in/back")
            sums = shell(bench, b, "sha256sum /tmp/ftp/file /tmp/ftp/in/back; rm /tmp/ftp/in/back").split()
            expect(shell(bench, a, "sha256sum /tmp/file").split()[0] == sums[0] == sums[2], f"{way}: {sums}")
        script = f"set net:max-retries 1; open {there}; ls; mirror --parallel=2 -v / /tmp/mirror"
        output = run(bench, a, f"lftp -c {shlex.quote(script)}")
        tell(output)
        expect(re.search(r" 1000003 .* file", output), output)
        shell(bench, a, "cmp /tmp/mirror/file /tmp/file")
    counted(bench, before, 7_000_000)


# The samples of samples/hello that have no place in the initramfs: how they are started, and who opens the sockets.
SAMPLES = {
    "go": ("/opt/hello-go", ""),
    "java": ("java -Xshare:auto -XX:TieredStopAtLevel=1 -cp /opt/hello-java Hello", RUN),
    "node": ("node /opt/hello.js", RUN),
}


def sample(bench: Bench, command: str, door: str) -> None:
    """The text goes to the server and back, and so does one of the sample in C with it."""
    there = f"{bench.address(bench.b)} 7024"
    for serves, asks in ((command, command), (command, "hello"), ("hello", command)):
        before = bench.stats(bench.b)["rx_bytes"]
        doors = [("" if word == "hello" else door) for word in (serves, asks)]
        with serving(bench, bench.b, f"{serves} serve {there}", 7024, doors[0]) as server:
            said = run(bench, bench.a, f"{asks} ask {there} 'hello over SDP'", doors[1]).strip()
            expect(said == "hello over SDP", f"{asks}, of {serves}: {said}")
            bench.succeed(server, 20)
        expect(bench.stats(bench.b)["rx_bytes"] - before == len("hello over SDP"), "the text did not go by SDP")


@test()
def sample_go(bench: Bench) -> None:
    """It names the family."""
    sample(bench, *SAMPLES["go"])


@test()
def sample_java(bench: Bench) -> None:
    sample(bench, *SAMPLES["java"])


@test()
def sample_node(bench: Bench) -> None:
    sample(bench, *SAMPLES["node"])


@test()
def java_sdp_conf(bench: Bench) -> None:
    """Java opens sockets of SDP itself where its own file says so (com.sun.sdp.conf), with IPv4 alone."""
    there = f"{bench.address(bench.b)} 7026"
    java = "java -Dcom.sun.sdp.conf=/tmp/sdp.conf -Dcom.sun.sdp.debug {} -Xshare:auto -cp /opt/hello-java Hello"
    only4 = java.format("-Djava.net.preferIPv4Stack=true")
    for vm in (bench.a, bench.b):
        write(vm, "/tmp/sdp.conf", "bind 10.27.0.0/16 *\nconnect 10.27.0.0/16 *")
    before = bench.stats(bench.b)["rx_bytes"]
    with serving(bench, bench.b, f"{only4} serve {there}", 7026, "") as server:
        said = run(bench, bench.a, f"{only4} ask {there} 'hello over SDP'", "")
        tell(said)
        expect(said.strip().endswith("hello over SDP"), said)
        bench.succeed(server, 20)
    expect(bench.stats(bench.b)["rx_bytes"] - before == len("hello over SDP"), "the text did not go by SDP")
    # Without it, Java's sockets are those of IPv6.
    with serving(bench, bench.b, "hello serve " + there, 7026, ""):
        job = spawn(bench.a, f"{java.format('')} ask {there} 'hello over SDP'", "")
        status = bench.finish(job, LONG)
        tell("\n".join(job.lines[:3]))
        expect(status == 1 and "IPv6 not supported" in job.output, f"{status} {job.output}")


@test()
def java_http_server(bench: Bench) -> None:
    """It waits in a selector."""
    there = bench.address(bench.b)
    shell(bench, bench.b, "mkdir -p /tmp/java; seq 100000 >/tmp/java/numbers")
    before = bench.stats(bench.a)
    with serving(bench, bench.b, f"java -XX:TieredStopAtLevel=1 -m jdk.httpserver -b {there} -p 8084 -d /tmp/java",
                 8084) as server:
        said = shell(bench, bench.a, f"{RUN} curl -sSf http://{there}:8084/numbers | md5sum; seq 100000 | md5sum")
        expect(len(set(said.split())) == 2, said)
        run(bench, bench.a, "curl -sSf --parallel --parallel-immediate --parallel-max 20 -o /dev/null "
            f"http://{there}:8084/?[1-20]")
        tell("\n".join(server.lines[:3]))
    counted(bench, before, 588_895)


CLUSTER = """
const cluster = require('cluster'), http = require('http');
if (cluster.isPrimary) {
    cluster.on('listening', (worker) => console.log(`worker ${worker.id} is online`));
    cluster.fork();
    cluster.fork();
} else {
    // A client that the host keeps waiting would meet the end of a connection with a request.
    http.createServer({ keepAliveTimeout: 600000 }, (request, answer) => {
        answer.setHeader('worker', process.pid);
        answer.end(Buffer.alloc(20000, 'x'));
    }).listen(8086, process.argv[2]);
}
"""
REQUESTS = """
const http = require('http'), agent = new http.Agent({ keepAlive: true, maxSockets: 5 }), workers = new Set();
let answers = 0, bytes = 0;
for (let i = 0; i < 60; i++) {
    http.get({ host: process.argv[2], port: 8086, agent }, (answer) => {
        workers.add(answer.headers.worker);
        answer.on('data', (data) => { bytes += data.length; });
        answer.on('end', () => {
            if (++answers == 60) {
                console.log(`${answers} answers of ${workers.size} workers, ${bytes} bytes`);
                agent.destroy();
            }
        });
    });
}
"""


@test()
def node_cluster(bench: Bench) -> None:
    """A process accepts, and hands the connections to others."""
    there = bench.address(bench.b)
    write(bench.b, "/tmp/cluster.js", CLUSTER)
    write(bench.a, "/tmp/requests.js", REQUESTS)
    before = bench.stats(bench.a)
    with serving(bench, bench.b, f"node /tmp/cluster.js {there}", 8086) as server:
        wait_for(lambda: server.output.count("online") == 2, bench.limit(LONG), server)
        said = run(bench, bench.a, f"node /tmp/requests.js {there}")
        tell(said)
        expect("60 answers of 2 workers, 1200000 bytes" in said, said)
    counted(bench, before, 1_200_000)


@test()
def steered_caddy(bench: Bench) -> None:
    """A server in Go, statically linked, which the kernel gives sockets of SDP; curl and wget as well."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    sums = shell(bench, b, f"mkdir -p /tmp/site; cd /tmp/site; for n in {' '.join(map(str, SIZES))}; do "
                 "head -c $n /dev/urandom >$n; done; sha256sum *")
    before = bench.stats(a)
    with steering(a), steering(b):
        b.check("sdpctl steer add --program caddy")
        a.check("sdpctl steer add --program curl")
        a.check("sdpctl steer add --program wget")
        with serving(bench, b, f"caddy file-server --listen {there}:8081 --root /tmp/site", 8081, "") as server:
            urls = [f"http://{there}:8081/{n}" for n in SIZES]
            files = " ".join(f"-o /tmp/{url.rpartition('/')[2]} {url}" for url in urls)
            tell(run(bench, a, f"curl -sS -w '%{{http_code}} %{{size_download}} bytes\\n' {files}", ""))
            tell(run(bench, a, f"wget -nv -P /tmp/site {' '.join(urls)}", ""))
            for folder in ("/tmp", "/tmp/site"):
                got = shell(bench, a, f"cd {folder}; sha256sum {' '.join(map(str, sorted(SIZES, key=str)))}")
                expect(got == sums, f"{folder}: {got}\n{sums}")
            tell(server.output, 3)
    counted(bench, before, 2 * sum(SIZES))


@test()
def python_http_server(bench: Bench) -> None:
    there = bench.address(bench.b)
    shell(bench, bench.b, "mkdir -p /tmp/python; seq 100000 >/tmp/python/numbers")
    before = bench.stats(bench.a)
    with serving(bench, bench.b, f"python3 -u -m http.server --bind {there} -d /tmp/python 8082", 8082) as server:
        said = shell(bench, bench.a, f"{RUN} curl -sS http://{there}:8082/numbers | md5sum; seq 100000 | md5sum")
        expect(len(set(said.split())) == 2, said)
        tell(server.output, 3)
    counted(bench, before, 588_895)


# The kernel has the socket from the mount on; diod gets it as its standard input and output.
NINE_P_SERVER = """
import os, socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257)
listener.bind((sys.argv[1], 5640))
listener.listen()
connection, _ = listener.accept()
for fd in (0, 1):
    os.dup2(connection.fileno(), fd)
os.execvp("diod", "diod -f -n -N -r 0 -w 1 -e /tmp/export".split())
"""
NINE_P_CLIENT = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
where = "/tmp/remote"
os.mkdir(where)
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 257) as sock:
    sock.connect((sys.argv[1], 5640))
    options = (f"trans=fd,rfdno={sock.fileno()},wfdno={sock.fileno()},version=9p2000.L,msize=131072,"
               "aname=/tmp/export,uname=root,access=user")
    if libc.mount(b"sdp", where.encode(), b"9p", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
want = os.urandom(3_000_001)
with open(f"{where}/new", "wb") as file:
    file.write(want)
    os.fsync(file.fileno())
os.rename(f"{where}/new", f"{where}/large")
with open(f"{where}/large", "rb") as file:
    assert file.read() == want
os.mkdir(f"{where}/folder")
for number in range(50):
    with open(f"{where}/folder/{number}", "w") as file:
        file.write(str(number))
for number in range(50):
    with open(f"{where}/folder/{number}") as file:
        assert file.read() == str(number)
print(os.listdir(where), len(os.listdir(f"{where}/folder")), os.stat(f"{where}/large").st_size)
assert libc.umount(where.encode()) == 0
"""


@test()
def nine_p(bench: Bench) -> None:
    """A user of the socket in the kernel: the 9P file system over a connection that a program made."""
    there = bench.address(bench.b)
    shell(bench, bench.b, "mkdir /tmp/export")
    write(bench.a, "/tmp/client.py", NINE_P_CLIENT)
    write(bench.b, "/tmp/server.py", NINE_P_SERVER)
    before = bench.stats(bench.a)
    with serving(bench, bench.b, f"python3 /tmp/server.py {there}", 5640, "") as server:
        tell(run(bench, bench.a, f"python3 /tmp/client.py {there}", ""))
        tell(server.output, 3)
    counted(bench, before, 6_000_000)
    found = shell(bench, bench.b, "ls /tmp/export/folder | wc -l; stat -c %s /tmp/export/large").split()
    expect(found == ["50", "3000001"], found)


LANDLOCK = """
import ctypes, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
# No access to files is handled; connecting and binding by TCP is, and no rule allows it.
handled = (ctypes.c_uint64 * 2)(0, 3)
ruleset = libc.syscall(444, handled, ctypes.c_size_t(16), 0)
assert ruleset >= 0, ctypes.get_errno()
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(446, ruleset, 0) == 0, ctypes.get_errno()
for name, protocol in (("TCP", 6), ("SDP", 257)):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(30)
        try:
            sock.connect((sys.argv[1], int(sys.argv[2])))
            print(name, "connected")
        except OSError as error:
            print(name, error)
"""
SIMPLE = """
import socket, sys
for name, protocol in (("TCP", 6), ("SDP", 257)):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(10)
        try:
            sock.connect((sys.argv[1], int(sys.argv[2])))
            print(name, "connected")
        except OSError as error:
            print(name, error)
"""


@test()
def landlock_and_nftables(bench: Bench) -> None:
    """Both stop TCP, and neither sees SDP."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    write(a, "/tmp/landlock.py", LANDLOCK)
    write(a, "/tmp/simple.py", SIMPLE)
    rules = ("add table inet t; add chain inet t in { type filter hook input priority 0; policy accept; }; "
             "add rule inet t in tcp dport 7027 counter drop; add rule inet t in udp dport 4791 counter")
    b.check("modprobe nf_tables")
    with (serving(bench, b, "python3 -m http.server --bind " + there + " 7027", 7027),
          serving(bench, b, "python3 -m http.server --bind " + there + " 7027", 7027, "", LISTENERS_OF_TCP),
          contextlib.ExitStack() as stack):
        said = run(bench, a, f"python3 /tmp/simple.py {there} 7027", "")
        expect(said.split() == ["TCP", "connected", "SDP", "connected"], said)
        said = run(bench, a, f"python3 /tmp/landlock.py {there} 7027", "")
        tell(said)
        expect("TCP [Errno 13]" in said and "SDP connected" in said, said)
        stack.callback(run, bench, b, "sh -c 'nft delete table inet t || true'", "")
        run(bench, b, f"nft {shlex.quote(rules)}", "")
        said = run(bench, a, f"python3 /tmp/simple.py {there} 7027", "")
        shown = run(bench, b, "nft list table inet t", "")
        tell(f"{said}\n{shown}")
        expect("TCP timed out" in said and "SDP connected" in said, said)


SDP_IN_INFINIBAND = "-d infiniband,infiniband_sdp"


def dissected(bench: Bench, vm: Vm, options: str = "") -> str:
    """What tshark says of the capture."""
    return run(bench, vm, f"tshark -r /tmp/capture {options}", "")


@test()
def wireshark(bench: Bench) -> None:
    """Its dissector finds the messages when it is told to decode the payload of InfiniBand as SDP."""
    a, b, there = bench.a, bench.b, bench.address(bench.b)
    capture = spawn(a, "tshark -q -i eth0 -f 'udp port 4791' -w /tmp/capture -a duration:600", "")
    wait_for(lambda: capture.says("Capturing"), bench.limit(LONG), capture)
    with serving(bench, b, f"hello serve {there} 7028", 7028, ""):
        run(bench, a, f"hello ask {there} 7028 'hello over SDP'", "")
    # The program that captures writes to the file with a delay.
    wait_for(lambda: "SDP Data" in dissected(bench, a, SDP_IN_INFINIBAND), bench.limit(LONG),
             "the capture has no message")
    shell(bench, a, "kill -INT $(pidof dumpcap)")
    bench.finish(capture, LONG)
    for options in ("", SDP_IN_INFINIBAND):
        said = dissected(bench, a, options)
        print(f"# tshark {options}", flush=True)
        tell(said, 30)
    expect("SDP Data" in said, said)
