"""What each command of the command line does. Imports of pandas and jinja2 wait until a command needs them."""
