# Run by the service `certs` of docker-compose.yml: makes the certificates that are missing in /authority and gives the
# server and each client, whose volumes lie under /certs and /clients/NAME, its part and no more.
set -- /authority
for host in $HOSTS; do set -- "$@" --host "$host"; done
for folder in /clients/*; do set -- "$@" --client "${folder##*/}"; done
for client in $OTHER_CLIENTS; do  # whose keys may be elsewhere by now
  [ -e "/authority/keys/$client.pub" ] || set -- "$@" --client "$client"
done
perdl certs "$@"

mkdir -p /certs/keys
cp /authority/ca.crt /authority/server.crt /authority/server.key /certs
cp /authority/keys/*.pub /certs/keys
for key in /certs/keys/*.pub; do
  [ -e "/authority/keys/${key##*/}" ] || rm "$key"
done
perdl gateway --certs /certs --listen 0.0.0.0:8443 --to 127.0.0.1:8000 --run /tmp > /certs/gateway.conf
for folder in /clients/*; do
  cp "/authority/clients/${folder##*/}"/* "$folder"
done

chown -R "$OWNER" /authority /certs /clients/*
chown "$OWNER" /results
