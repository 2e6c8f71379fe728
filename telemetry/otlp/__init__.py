"""Export by the OpenTelemetry SDK, over OTLP/HTTP with Protobuf. A process that exports nothing imports none of this.

export.py is all that a process exports: traces, metrics.py and logs.py; spans.py turns our spans into those of the SDK,
remote.py names spans of other processes; resource.py says who exports;
sending.py counts what was not sent, and ends a sender within a bounded time; worker_spans.py is for the processes of
workers.

Not here: which spans there are (actors/runs/shared/spans.py, worker/tasks/tracing.py), what is counted (meters.py), and
what goes to the stream TELEMETRY (broker/streams/telemetry.py). The SDK is an extra of the installation
(`penstock[otel]`): only config/settings.py checks that it is there. Start reading at export.py.
"""
