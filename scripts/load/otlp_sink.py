"""A receiver of OTLP over HTTP as a program of its own, which keeps nothing. It prints its address."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
