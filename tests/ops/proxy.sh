#!/usr/bin/env bash
# systemd/nginx.conf in front of the daemon: an upload, a job and its events through TLS, links that lead back
# through it, refusals in needled's own words, and no trust in what a client says of itself.
#   tests/ops/proxy.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
export PATH=$PATH:/usr/sbin
for tool in nginx openssl; do
    if ! command -v $tool >/dev/null; then
        echo "skip - nginx in front of the daemon: $tool is not installed (Debian: nginx-light, openssl)"
        exit 0
    fi
done
nginx_id=
stop() {
    [ -n "$nginx_id" ] && kill "$nginx_id" 2>/dev/null && wait "$nginx_id" 2>/dev/null
    stop_daemon
}
trap 'stop >/dev/null 2>&1; rm -rf "$work"' EXIT
name=needled.example.com

base_folder needle-3
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$name" -addext "subjectAltName=DNS:$name" \
    -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
echo "{\"public_url\": \"https://$name\"}" >"$work/settings.json"
start_daemon "$out" --config "$work/settings.json" || exit 1
expect "a public address without any key is warned about" grep -q "public_url.*no API key" "$work/needled.log"
secret=$("$out/needlectl" --server "unix:$work/state/needled.sock" key create proxied 2>/dev/null)
expect "a key is made" has '^needle_ft_' "$secret"

# The example with this test's ports, files and folder; what surrounds it on Debian is reduced to what it needs.
tls_port=
for _ in 1 2 3 4 5; do
    try=$((20000 + RANDOM % 20000))
    sed "s|127.0.0.1:7733|127.0.0.1:$port|; s|listen 443 |listen 127.0.0.1:$try |
        s|/etc/ssl/needled/fullchain.pem|$work/cert.pem|; s|/etc/ssl/needled/privkey.pem|$work/key.pem|" \
        systemd/nginx.conf >"$work/site.conf"
    cat >"$work/nginx.conf" <<EOF
daemon off;
worker_processes 1;
pid $work/nginx.pid;
error_log $work/nginx.log;
events {}
http {
    access_log off;
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    include $work/site.conf;
}
EOF
    nginx -p "$work" -c "$work/nginx.conf" -e "$work/nginx.log" 2>>"$work/nginx.log" &
    nginx_id=$!
    comes_up() { answers || ! kill -0 $nginx_id 2>/dev/null; } # or has not got the port
    answers() { curl -sk --max-time 2 -o /dev/null "https://127.0.0.1:$try/"; }
    wait_for 5 comes_up && kill -0 $nginx_id 2>/dev/null && tls_port=$try && break
    kill $nginx_id 2>/dev/null
    wait $nginx_id 2>/dev/null
done
expect "nginx takes the example" [ -n "$tls_port" ]
[ -n "$tls_port" ] || { cat "$work/nginx.log"; exit 1; }

# As a client sees it: the certificate's name, its port.
site=https://$name
tls=(--cacert "$work/cert.pem" --connect-to "$name:443:127.0.0.1:$tls_port")
with=(-H "Authorization: Bearer $secret")
through() { call "${tls[@]}" "$@"; }

through "$site/v1/models"
expect "without a key there is nothing" is "$status $(field code <<<"$answer")" "401 invalid_api_key"
expect "the page that helps is behind the proxy too" is "$(field url <<<"$answer")" "$site/help/keys"
through -H 'X-Forwarded-For: 127.0.0.1' -H 'X-Real-IP: 127.0.0.1' -H 'Forwarded: for=127.0.0.1' "$site/v1/models"
expect "a client does not become local by saying so" is "$status" 401
through "${with[@]}" "$site/v1/models"
expect "with the key there is" is "$status" 200
call -k --connect-to "evil.example:443:127.0.0.1:$tls_port" "${with[@]}" https://evil.example/v1/models
expect "another name is refused" is "$status $(field code <<<"$answer")" "403 host_not_allowed"

# ---- an upload, its links, a job, its events -----------------------------------------------------------------

through "${with[@]}" -F purpose=fine-tune -F "file=@tests/fixtures/needle3/train.jsonl" "$site/v1/files"
file=$(field id <<<"$answer")
expect "a file goes up" is "$status" 200
through "${with[@]}" -D "$work/headers" -H 'X-Forwarded-Host: evil.example' -H 'X-Forwarded-Proto: gopher' \
    "$site/v1/files/$file/content"
location=$(tr -d '\r' <"$work/headers" | sed -n 's/^location: //Ip')
expect "its link leads back through the proxy" has "^$site/v1/files/$file/bytes\?" "$location"
curl -s "${tls[@]}" -o "$work/copy" "$location"
expect "to its bytes" cmp -s "$work/copy" tests/fixtures/needle3/train.jsonl
lines=$(printf '{"query":"a %d","tools":[],"answers":[]}\\n' 1 2 3)
printf '%b' "$lines" >"$work/three"
through "${with[@]}" -H 'Content-Type: application/json' -d "{\"name\":\"t\",\"bytes\":$(wc -c <"$work/three")}" "$site/v1/files"
put=$(field url <<<"$answer") upload_id=$(field id <<<"$answer")
expect "an upload is reserved with a link of the proxy" has "^$site/v1/uploads/" "$put"
through -T "$work/three" -H 'Content-Type: application/octet-stream' "$put"
expect "its bytes go there" is "$status" 200
through "${with[@]}" -X POST "$site/v1/files/$upload_id/complete"
expect "and it is completed" is "$status" 201

lasting_lines >"$work/lasting.jsonl"
through "${with[@]}" -F purpose=fine-tune -F "file=@$work/lasting.jsonl" "$site/v1/files"
through "${with[@]}" -H 'Content-Type: application/json' "$site/v1/fine_tuning/jobs" \
    -d "{\"model\":\"needle-3\",\"training_file\":\"$(field id <<<"$answer")\",\"hyperparameters\":{$lasting}}"
id=$(field id <<<"$answer")
expect "a job is made" is "$status" 200
curl -sN "${tls[@]}" "${with[@]}" "$site/v1/fine_tuning/jobs/$id/events?stream=true" >"$work/stream" &
reader=$!
step() { grep -q '"type":"metrics"' "$work/stream"; }
expect "its events come through" wait_for 60 step
still() { kill -0 $reader && [ "$(curl -s "${tls[@]}" "${with[@]}" "$site/v1/fine_tuning/jobs/$id" | field status)" = running ]; }
expect "while it runs: nothing holds them back" still
through "${with[@]}" -X POST "$site/v1/fine_tuning/jobs/$id/cancel"
expect "it is cancelled" is "$status" 200
done_now() { ! kill -0 $reader 2>/dev/null && grep -q '^event: done' "$work/stream"; }
expect "and its stream ends with done" wait_for 20 done_now

# ---- bodies ---------------------------------------------------------------------------------------------

seq -f '{"query":"say %.0f and then some more of the same, so that the line has a length","tools":[],"answers":[]}' \
    300000 >"$work/large.jsonl"
through "${with[@]}" -F purpose=fine-tune -F "file=@$work/large.jsonl" "$site/v1/files"
expect "30 MB go up, of which nginx alone would refuse all but one" \
    is "$status $(field bytes <<<"$answer")" "200 $(wc -c <"$work/large.jsonl")"
through "${with[@]}" -H 'Content-Type: application/json' -d '{"name":"t","bytes":536870912}' "$site/v1/files"
expect "512 MB are reserved" is "$status" 201
before=$SECONDS
through "${with[@]}" -H 'Expect:' -H 'Content-Type: multipart/form-data; boundary=b' -H 'Content-Length: 600000000' \
    --data-binary @"$work/large.jsonl" --max-time 60 "$site/v1/files"
expect "600 MB are refused in needled's own words" is "$status $(field code <<<"$answer")" "413 request_too_large"
expect "before they are sent" [ $((SECONDS - before)) -lt 45 ]
