"""A web server that answers as the test tells it. Usage: server.py FOLDER [CERTIFICATE KEY]

FOLDER/answers.json: {path, or "*": {"status": 200, "body": base64, "cut": whether the connection breaks off}}, read anew for
each request. With status 302, the body is the server that has the path. FOLDER/requests gets a line for each request: path, tab, Authorization. The first line of output is the port."""
import base64
import http.server
import json
import ssl
import sys

folder = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(folder + "/requests", "a") as log:
            log.write("%s\t%s\n" % (self.path, self.headers.get("Authorization", "")))
        with open(folder + "/answers.json") as file:
            answers = json.load(file)
        answer = answers.get(self.path) or answers.get("*") or {"status": 404, "body": ""}
        body = base64.b64decode(answer["body"])
        cut = answer.get("cut", False)
        self.send_response(answer["status"])
        if answer["status"] == 302:
            self.send_header("Location", body.decode() + self.path)
        self.send_header("Content-Length", str(len(body) + (10 if cut else 0)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    do_PUT = do_GET

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
