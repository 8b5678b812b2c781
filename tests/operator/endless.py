"""A planner that never answers, run as the child process in tests of its limits."""

import time

if __name__ == "__main__":
    time.sleep(3600)
