"""`python -m tessera`: the same as `tessc`."""

from tessera.cli.main import main

if __name__ == "__main__":
    main()
