"""The pipelines behind the commands: analyze, plan, run, serve, fleet, trace, profile.

In: paths and option records. Out: result records. Each pipeline is one straight function that names
its passes in order and stands first in its file: `analyze.analyze`, `plan.plan`,
 `run.run_trace.run_trace`, `run.run_plan.run_plan`,
`serve.simulate_text.simulate_text`, `fleet.make_fleet.fleet`, `trace.capture_trace.trace`,
`profile.profile`. Imported by `tessera.cli` and `tessera.report`; users get its functions from
`tessera`.
"""
