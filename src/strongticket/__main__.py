"""`python -m strongticket`, which is how torchrun starts the command."""

from strongticket.cli import main

if __name__ == "__main__":
    main()
