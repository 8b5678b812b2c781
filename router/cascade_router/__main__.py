"""Command line: ``serve`` answers requests, ``calibrate`` makes a calibration table."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] == "worker":
        from . import process

        process.main(arguments[1:])
        return 0
    args = _parser().parse_args(arguments)
    if args.command == "serve":
        return _serve(args)
    from . import calibrate

    return calibrate.main(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cascade-router", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="answer requests by the plan")
    serve.add_argument("--config", type=Path, help="plan document (router.json); followed when "
                       "--configmap is absent, else the start-up copy")  # fmt: skip
    serve.add_argument("--configmap", help="name of the ConfigMap with the plan; followed by watch")
    serve.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE"))
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--admin-port", type=int, default=9090)
    serve.add_argument("--processes", type=int, help="worker processes",
                       default=int(os.environ.get("CASCADE_ROUTER_PROCESSES", "1")))  # fmt: skip
    serve.add_argument("--linger-seconds", type=float, default=5.0,
                       help="serve on after SIGTERM while endpoints update")  # fmt: skip
    serve.add_argument("--grace-seconds", type=float, default=100.0,
                       help="then finish open requests for at most this long")  # fmt: skip
    serve.add_argument("--seed", type=int, help="of all random choices; a fresh one by default")
    serve.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    calibrate = commands.add_parser("calibrate", help="make a calibration table")
    calibrate.add_argument("--config", type=Path, required=True, help="plan document (router.json)")
    calibrate.add_argument("--prompts", type=Path, required=True,
                           help='JSON lines of {"id", "messages", "max_tokens"}')  # fmt: skip
    target = calibrate.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, help="CSV file; rows it already has are kept")
    target.add_argument("--configmap", help="ConfigMap to create or update with the table")
    calibrate.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    calibrate.add_argument("--concurrency", type=int, default=8, help="prompts under way at once")
    calibrate.add_argument("--limit", type=int, help="stop after this many prompts")
    calibrate.add_argument("--seed", type=int, default=0)
    calibrate.add_argument("--log-level", default="warning",
                           choices=["debug", "info", "warning", "error"])  # fmt: skip
    return parser


def _serve(args: argparse.Namespace) -> int:
    import uvloop

    from . import logs, supervisor
    from .acknowledgement import Identity
    from .errors import KubeError
    from .workers import WorkerOptions

    identity = None
    if args.configmap is not None:
        names = ("POD_NAME", "POD_UID")
        missing = [name for name in names if not os.environ.get(name)]
        if args.namespace is None:
            missing.append("POD_NAMESPACE (or --namespace)")
        if missing:
            print(f"--configmap needs the environment: {', '.join(missing)}", file=sys.stderr)
            return 2
        identity = Identity(args.namespace, *(os.environ[name] for name in names))
    elif args.config is None:
        print("serve needs --config FILE or --configmap NAME", file=sys.stderr)
        return 2
    if args.processes < 1:
        print(f"--processes: {args.processes} is out of range: at least 1", file=sys.stderr)
        return 2
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "big")
    options = supervisor.Options(
        workers=WorkerOptions(args.host, args.port, args.processes, seed, args.log_level),
        admin_port=args.admin_port,
        config_file=args.config,
        configmap=args.configmap,
        identity=identity,
        linger_seconds=args.linger_seconds,
        grace_seconds=args.grace_seconds,
    )
    logs.configure("supervisor", args.log_level)
    try:
        uvloop.run(supervisor.Supervisor(options).run())
    except KubeError as error:
        print(f"cascade-router serve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
