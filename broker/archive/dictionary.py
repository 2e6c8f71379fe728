"""Text that histories have in common: runs are compressed with it one by one, and read with the one that wrote them.

A dictionary never changes: another one gets another number. What is frequent stands at the end, where a reference to it
is short.
"""

from __future__ import annotations

_FIRST = (
    b'"failure_type":"retry_after","retry_after_ms":"failure_type":"non_retriable","failure_type":"retriable",'
    b'"traceback":"Traceback (most recent call last):\\n  File \\"", line , in \\nValueError: RuntimeError: '
    b'{"type":"approval.requested","step_id":"","payload":{"token":"","expires_at":"","description":"","metadata":{'
    b'{"type":"approval.granted","payload":{"comment":"","approved_by":"{"type":"approval.rejected"'
    b'{"type":"approval.expired","payload":{"timer":"{"type":"timer.fired","payload":{"timer":"","step_id":"","attempt":'
    b'{"type":"signal.received","payload":{"name":"","size":{"type":"event.received","payload":{"name":"'
    b'{"type":"child.started","payload":{"run_id":"{"type":"child.ended","payload":{"run_id":"","status":"completed",'
    b'"output":{"type":"planner.expanded","payload":{"fragment":{"type":"step.taken_over","payload":{"status":"completed",'
    b'"outputs":{"type":"step.overridden","payload":{"output":,"by":"{"type":"limit.granted","payload":{"more":0'
    b'{"type":"workflow.scheduled","payload":{"workflow":"","version":"1","digest":"","run_at":"","input":'
    b'{"type":"workflow.resumed","payload":{"steps":[""],"dead_letters":0,"waits":0{"type":"workflow.compensating"'
    b'{"type":"workflow.paused","payload":{"children":false{"type":"workflow.unpaused"'
    b'{"type":"workflow.cancelled","run_id":"","timestamp":"","payload":{"reason":"","compensate":true'
    b'"items":{"iteration":1,"delivery":2,"attempt_number":2,"attempt_number":3,"trace_parent":"00-'
    b'"parent":{"run_id":"","step_id":"","rerun_of":"","rerun_from":"","takes":{"done":["","parts":[""'
    b'"trigger":{"name":"","kind":"webhook","kind":"cron","kind":"event","labels":{"","by":"","waits":1'
    b'true,false,null,"name":"","id":"","value":"","key":"","status":"ok","result":"","error":"","message":"","count":'
    b'{"type":"step.skipped","run_id":"{"type":"step.continue","run_id":"'
    b'{"type":"workflow.failed","run_id":"","timestamp":"","payload":{"error":"","step_id":""}}'
    b'{"type":"step.failed","run_id":"01a","timestamp":"2026-12-","step_id":"","worker_id":"worker-1","attempt_number":1,'
    b'"payload":{"error":"","failure_type":""}}completedcancelledfailed'
    b'{"type":"workflow.started","run_id":"01a","timestamp":"2026-12-01T00:00:00.000000Z","payload":'
    b'{"workflow":"","version":"1","digest":"","input":{"":null}}}'
    b'{"type":"step.started","run_id":"01a","timestamp":"2026-12-0","step_id":"step-1","worker_id":"worker-1",'
    b'"attempt_number":1}'
    b'{"type":"step.completed","run_id":"01a","timestamp":"2026-12-0","step_id":"s1","worker_id":"","attempt_number":1,'
    b'"started_at":"2026-12-0","payload":{"":'
    b'{"type":"workflow.completed","run_id":"01a","timestamp":"2026-11-","payload":{"output":{"":'
    b'","attempt_number":1,"payload":","timestamp":"2026-11-'
    b'{"type":"step.completed","run_id":"01a'
)

DICTIONARIES = {1: _FIRST}
NEWEST = 1
